use saetta::prelude::*;

#[tuple]
pub struct Quote {
    pub symbol: String,
}
#[tuple]
pub struct Halt {
    pub reason: String,
}

struct Feed;
impl Emits<Quote> for Feed {}
impl Emits<Halt> for Feed {}
impl Spout for Feed {
    fn next(&mut self, _: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        Ok(Done)
    }
}

struct ByReason;
impl CustomGrouping<Halt> for ByReason {
    fn prepare(&mut self, _: &[u32]) {}
    fn choose(&mut self, _: &ArchivedHalt, _: &mut Vec<u32>) {}
}

struct Gate;
impl Bolt for Gate {}
impl Emits<Quote> for Gate {}
impl Handle<Quote> for Gate {
    fn on(&mut self, _: &ArchivedQuote, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit(&QuoteRef { symbol: "a" });
        Ok(())
    }
}

fn main() {
    let mut t = Topology::new();
    let mut feed = t.spout("feed", || Feed);
    let quotes = feed.stream::<Quote>();
    let halts = feed.stream::<Halt>();
    let _ = t.bolt("gate", || Gate).input(&quotes, Custom(|| ByReason));
    let _ = (quotes, halts);
}
