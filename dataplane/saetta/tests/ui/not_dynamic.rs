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
    let _ = t.bolt("gate", || Gate).input_dyn(&quotes, &["symbol"]);
    let _ = (quotes, halts);
}
