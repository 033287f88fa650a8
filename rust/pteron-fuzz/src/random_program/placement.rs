//! Addresses of a program's tensors, with as much reuse as their lifetimes allow.

use super::Generator;
use pteron_core::DType;
use pteron_format::write::ValueDraft;

impl Generator<'_> {
    /// Addresses: the lowest offset that no live tensor holds, or the bytes of a dying input.
    pub(super) fn place(&mut self) -> usize {
        let mut placed: Vec<(usize, usize, usize, usize)> = Vec::new(); // start, end, from, to
        let mut address = vec![0usize; self.nodes.len()];
        let mut top = 0;
        for i in 0..self.nodes.len() {
            if let Some(base) = self.nodes[i].base {
                if self.nodes[i].is_unsaid
                    && let ValueDraft::Tensor(t) = &mut self.method.values[self.nodes[i].value as usize]
                {
                    **t = t.clone().planned(1, address[base] as u64);
                }
                continue;
            }
            let bytes = self.bytes_of(i).next_multiple_of(16);
            let (from, to) = (self.nodes[i].defined_at, self.nodes[i].last_use);
            let dying = self.nodes[i].in_place_of.filter(|x| {
                let root =
                    self.nodes[*x].base.is_none() && !self.method.outputs.contains(&self.nodes[*x].value);
                root && self.nodes[*x].last_use == from && self.bytes_of(*x) == self.bytes_of(i)
            });
            let start = match dying {
                Some(x) if self.rng.one_in(2) => address[x],
                _ => {
                    let is_free = |start: usize| {
                        placed
                            .iter()
                            .all(|(s, e, f, t)| start + bytes <= *s || *e <= start || to < *f || *t < from)
                    };
                    let mut candidates: Vec<usize> = std::iter::once(0)
                        .chain(placed.iter().map(|p| p.1))
                        .filter(|c| is_free(*c))
                        .collect();
                    candidates.sort_unstable();
                    candidates[self.rng.below(candidates.len().min(2))]
                }
            };
            address[i] = start;
            top = top.max(start + bytes);
            placed.push((start, start + bytes, from, to));
            if let ValueDraft::Tensor(t) = &mut self.method.values[self.nodes[i].value as usize] {
                **t = t.clone().planned(1, start as u64);
            }
        }
        top
    }

    pub(super) fn bytes_of(&self, node: usize) -> usize {
        match &self.method.values[self.nodes[node].value as usize] {
            ValueDraft::Tensor(t) => {
                let is_wide = [DType::Int64, DType::Float64].iter().any(|wide| t.scalar_type == wide.code());
                let size = if is_wide { 8 } else { 4 };
                t.sizes.iter().map(|s| *s as usize).product::<usize>() * size
            }
            _ => 0,
        }
    }
}
