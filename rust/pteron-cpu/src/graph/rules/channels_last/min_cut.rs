//! The cheapest way to split the nodes of a network in two: Dinic's algorithm (1970).

/// A capacity that no cut pays.
pub(super) const NEVER: u64 = u64::MAX / 4;

/// The terminal on whose side [`Network::cut`] puts what it returns as true.
pub(super) const SOURCE: usize = 0;
/// The other one.
pub(super) const SINK: usize = 1;

struct Edge {
    to: usize,
    left: u64,
}

/// Nodes, and what it costs to have the two ends of an edge on different sides.
pub(super) struct Network {
    // Each edge is followed by its reverse.
    edges: Vec<Edge>,
    of: Vec<Vec<usize>>,
}

impl Network {
    /// The two terminals.
    pub fn new() -> Self {
        Network { edges: Vec::new(), of: vec![Vec::new(), Vec::new()] }
    }

    /// Another node.
    pub fn node(&mut self) -> usize {
        self.of.push(Vec::new());
        self.of.len() - 1
    }

    /// It costs `forward` to have `from` with the source and `to` with the sink, and `backward` the other way.
    pub fn edge(&mut self, from: usize, to: usize, forward: u64, backward: u64) {
        for (at, to, left) in [(from, to, forward), (to, from, backward)] {
            self.of[at].push(self.edges.len());
            self.edges.push(Edge { to, left });
        }
    }

    /// Which nodes are with the source in the cheapest split; of several, the one with the fewest there.
    pub fn cut(mut self) -> Vec<bool> {
        loop {
            let levels = self.levels();
            if levels[SINK] == usize::MAX {
                return levels.iter().map(|l| *l != usize::MAX).collect();
            }
            let mut next = vec![0; self.of.len()];
            while self.augment(&levels, &mut next) {}
        }
    }

    /// Distance of every node from the source over edges that have capacity left.
    fn levels(&self) -> Vec<usize> {
        let mut levels = vec![usize::MAX; self.of.len()];
        levels[SOURCE] = 0;
        let mut queue = std::collections::VecDeque::from([SOURCE]);
        while let Some(at) = queue.pop_front() {
            for edge in self.of[at].iter().map(|e| &self.edges[*e]) {
                if edge.left > 0 && levels[edge.to] == usize::MAX {
                    levels[edge.to] = levels[at] + 1;
                    queue.push_back(edge.to);
                }
            }
        }
        levels
    }

    /// Sends flow along one path that goes up a level with every edge; false when there is none left.
    /// `next`: edges of each node that are known to lead nowhere.
    fn augment(&mut self, levels: &[usize], next: &mut [usize]) -> bool {
        let mut path: Vec<usize> = Vec::new();
        let mut at = SOURCE;
        while at != SINK {
            match self.of[at].get(next[at]).copied() {
                Some(e) => {
                    let Edge { to, left } = self.edges[e];
                    if left > 0 && levels[to] == levels[at] + 1 {
                        path.push(e);
                        at = to;
                    } else {
                        next[at] += 1;
                    }
                }
                None => {
                    let Some(e) = path.pop() else { return false };
                    at = self.edges[e ^ 1].to;
                    next[at] += 1;
                }
            }
        }
        let flow = path.iter().map(|e| self.edges[*e].left).min().unwrap_or(0);
        for e in path {
            self.edges[e].left -= flow;
            self.edges[e ^ 1].left += flow;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_edges_are_cut() {
        let mut n = Network::new();
        let (a, b, c) = (n.node(), n.node(), n.node());
        n.edge(SOURCE, a, 5, 0);
        n.edge(a, b, 3, 3);
        n.edge(b, c, 2, 2);
        n.edge(c, SINK, 4, 0);
        n.edge(SOURCE, c, 1, 0);
        assert_eq!(n.cut(), [true, false, true, true, false]);
    }

    #[test]
    fn every_split_of_small_networks_costs_at_least_as_much() {
        let mut state = 7u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for _ in 0..200 {
            let mut n = Network::new();
            let inner = 2 + random(5) as usize;
            (0..inner).for_each(|_| {
                n.node();
            });
            let all = inner as u64 + 2;
            let list: Vec<(usize, usize, u64, u64)> = (0..12)
                .map(|_| (random(all) as usize, random(all) as usize, random(9), random(9)))
                .filter(|(a, b, ..)| a != b)
                .collect();
            list.iter().for_each(|(a, b, f, r)| n.edge(*a, *b, *f, *r));
            let price = |side: &dyn Fn(usize) -> bool| -> u64 {
                let paid = |a: usize, b: usize, price: u64| if side(a) && !side(b) { price } else { 0 };
                list.iter().map(|(a, b, f, r)| paid(*a, *b, *f) + paid(*b, *a, *r)).sum()
            };
            let cut = n.cut();
            let best = (0..1u32 << inner)
                .map(|bits| price(&|i| i == SOURCE || (i > 1 && bits & (1 << (i - 2)) != 0)))
                .min();
            assert_eq!(Some(price(&|i| cut[i])), best);
        }
    }
}
