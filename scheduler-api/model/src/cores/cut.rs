//! Cuts a line of executors into consecutive runs, one per core: first so that the fullest core is as empty as can be, then so that no
//! core is idle and few neighbours are parted. Exact, by dynamic programming, up to `UNITS_MAX` units; a longer line is cut between groups of executors.

/// Units the line is cut between. Steps grow with cores times its square: 64 cores take 4 M.
const UNITS_MAX: usize = 256;
/// A core may be fuller than the best cut's fullest by one part in so many where that keeps neighbours together: a measurement is not more
/// exact than that.
const SLACK_PART: u64 = 16;

/// One executor in the line.
pub(super) struct Member {
    /// Its load.
    pub(super) weight: u64,
    /// Cores on which neighbours of it stand that are not in the line.
    pub(super) pulls: Vec<usize>,
}

/// Consecutive members that stay together.
struct Unit {
    /// First member.
    from: usize,
    weight: u64,
    /// By core: neighbours elsewhere when it stands there.
    parted: Vec<u64>,
}

/// Among cuts within the slack: cores with nothing to do, then neighbours parted, then how uneven the load is.
type Cost = (u64, u64, u128);

/// The index of the core of each member. `edges` are first and last place in the line of two components that are neighbours; `load` is
/// what the cores have already.
pub(super) fn cut(members: &[Member], edges: &[(usize, usize)], load: &[u64]) -> Vec<usize> {
    if members.is_empty() {
        return Vec::new();
    }
    let size = members.len().div_ceil(UNITS_MAX);
    let units: Vec<Unit> = members
        .chunks(size)
        .enumerate()
        .map(|(i, part)| {
            let pulls: Vec<usize> = part.iter().flat_map(|m| m.pulls.iter().copied()).collect();
            let parted = (0..load.len()).map(|core| pulls.iter().filter(|p| **p != core).count() as u64).collect();
            Unit { from: i * size, weight: part.iter().map(|m| m.weight).sum(), parted }
        })
        .collect();
    // Neighbours parted by a cut before unit i.
    let spanned: Vec<u64> =
        units.iter().map(|u| edges.iter().filter(|(first, last)| *first < u.from && u.from <= *last).count() as u64).collect();

    // Cores are alike but for what they have: the line may run over them either way.
    let ways: [Vec<usize>; 2] = [(0..load.len()).collect(), (0..load.len()).rev().collect()];
    let fullest = ways.iter().map(|way| least_fullest(&units, way, load)).min().expect("two ways");
    let allowed = fullest + fullest / SLACK_PART;
    let best = ways.iter().filter_map(|way| cheapest(&units, &spanned, way, load, allowed)).min_by_key(|(cost, _)| *cost);
    let (_, cores) = best.expect("the cut whose fullest core is the least full is one");
    (0..members.len()).map(|m| cores[m / size]).collect()
}

fn running_sum(units: &[Unit], of: impl Fn(&Unit) -> u64) -> Vec<u64> {
    let mut sum = vec![0];
    units.iter().for_each(|u| sum.push(sum[sum.len() - 1] + of(u)));
    sum
}

/// Load of the fullest core in the best cut.
fn least_fullest(units: &[Unit], way: &[usize], load: &[u64]) -> u64 {
    let sum = running_sum(units, |u| u.weight);
    // After some cores: the least fullest when they have the first i units. The first core has to have all that are given.
    let mut fullest: Vec<u64> = sum.iter().map(|s| load[way[0]] + s).collect();
    for core in &way[1..] {
        fullest = (0..sum.len())
            .map(|to| (0..=to).map(|from| fullest[from].max(load[*core] + sum[to] - sum[from])).min().expect("from 0 on"))
            .collect();
    }
    fullest[units.len()]
}

/// The cut that costs least with no core fuller than `allowed`; `None` = there is none this way.
fn cheapest(units: &[Unit], spanned: &[u64], way: &[usize], load: &[u64], allowed: u64) -> Option<(Cost, Vec<usize>)> {
    let sum = running_sum(units, |u| u.weight);
    let mut costs: Vec<Option<Cost>> = vec![None; sum.len()];
    costs[0] = Some((0, 0, 0));
    // By core: where its run begins when the cores up to it have the first i units.
    let mut begins: Vec<Vec<usize>> = Vec::with_capacity(way.len());
    for core in way {
        let parted = running_sum(units, |u| u.parted[*core]);
        let mut begin = vec![0; sum.len()];
        let next = (0..sum.len()).map(|to| {
            let mut best: Option<Cost> = None;
            for from in 0..=to {
                let full = load[*core] + sum[to] - sum[from];
                let Some((idle, apart, uneven)) = costs[from].filter(|_| full <= allowed) else { continue };
                let cut_here = if from < to { spanned[from] } else { 0 };
                let idle_here = u64::from(from == to && load[*core] == 0);
                let apart_here = cut_here + parted[to] - parted[from];
                let cost = (idle + idle_here, apart + apart_here, uneven + u128::from(full).pow(2));
                if best.is_none_or(|best| cost < best) {
                    (best, begin[to]) = (Some(cost), from);
                }
            }
            best
        });
        let next: Vec<Option<Cost>> = next.collect();
        costs = next;
        begins.push(begin);
    }
    let cost = costs[units.len()]?;
    let mut cores = vec![0; units.len()];
    let mut to = units.len();
    for (core, begin) in way.iter().zip(&begins).rev() {
        cores[begin[to]..to].fill(*core);
        to = begin[to];
    }
    assert_eq!(to, 0, "the first core's run begins the line");
    Some((cost, cores))
}
