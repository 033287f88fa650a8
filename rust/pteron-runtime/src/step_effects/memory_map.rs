//! Which bytes a tensor value can be at, over all moves and views, and whether the output of a call
//! can share bytes with its inputs in a way that its kernel does not allow.
//!
//! Most values have one place and the answer is final at load. Where a move makes it depend on the
//! path taken, the step carries its roles and the session looks at the pointers before each run.

use super::places::{Places, spread};
use super::{ByteRegion, Space};
use crate::ir::{MethodIr, TensorIr};
use pteron_core::{AliasRule, Error, Result, ValueId};
use smallvec::SmallVec;

/// What a call does with one tensor argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArgumentRole {
    pub value: ValueId,
    pub is_output: bool,
}

/// The places of all tensor values.
pub(crate) struct MemoryMap<'a> {
    ir: &'a MethodIr,
    places: Vec<Places>,
}

impl<'a> MemoryMap<'a> {
    /// `links`: (from, to) of every move and view.
    pub(crate) fn new(ir: &'a MethodIr, links: &[(ValueId, ValueId)]) -> Self {
        let ids = (0..).map(ValueId).take(ir.values.len());
        let own = |id: ValueId| match ir.tensor(id) {
            Some(_) => ByteRegion::of(ir, id).map(|region| smallvec::smallvec![region]),
            None => Some(SmallVec::new()),
        };
        let mut places: Vec<Places> = ids.map(own).collect();
        spread(ir, &mut places, links);
        MemoryMap { ir, places }
    }

    fn tensor(&self, id: ValueId) -> Option<&TensorIr> {
        self.ir.tensor(id)
    }

    /// All places of a value; `None`: too many to list.
    pub(crate) fn places(&self, id: ValueId) -> Option<&[ByteRegion]> {
        self.places.get(id.index()).and_then(|p| p.as_deref())
    }

    /// Unplanned inputs whose bytes the call may write; they have to be copied on entry.
    pub(crate) fn inputs_written_by(&self, roles: &[ArgumentRole]) -> Vec<ValueId> {
        let mut out = Vec::new();
        for role in roles.iter().filter(|r| r.is_output) {
            match self.places(role.value) {
                Some(places) => out.extend(places.iter().filter_map(|p| match p.space {
                    Space::Value(v) => Some(ValueId(v)).filter(|v| self.ir.inputs.contains(v)),
                    _ => None,
                })),
                None => out.extend(self.ir.inputs.iter().copied()),
            }
        }
        out
    }

    /// Whether the call's outputs stay clear of its inputs, of each other and of constants, as `rule`
    /// demands: `false` when that has to be checked before every run, an error when it is certainly
    /// violated.
    pub(crate) fn is_safe(&self, roles: &[ArgumentRole], rule: AliasRule) -> Result<bool> {
        let mut is_certain = true;
        for (i, out) in roles.iter().enumerate().filter(|(_, r)| r.is_output) {
            is_certain &= self.is_never_constant(out.value)?;
            for (j, other) in roles.iter().enumerate() {
                let is_second_look = other.is_output && j <= i;
                if i != j && !is_second_look {
                    is_certain &= self.is_pair_safe(out.value, other, pair_rule(rule, j))?;
                }
            }
        }
        Ok(is_certain)
    }

    fn is_never_constant(&self, out: ValueId) -> Result<bool> {
        let Some(places) = self.places(out) else { return Ok(false) };
        let constant = places.iter().filter(|p| p.space == Space::Constant).count();
        if constant > 0 && constant == places.len() {
            return Err(Error::program("an instruction writes to a constant")
                .expected("planned memory or an output")
                .got(format!("value {}, which only ever looks at a constant", out.0)));
        }
        Ok(constant == 0)
    }

    fn is_pair_safe(&self, out: ValueId, other: &ArgumentRole, rule: AliasRule) -> Result<bool> {
        if rule == AliasRule::View {
            return Ok(true);
        }
        if out == other.value {
            return match rule {
                AliasRule::InPlace if !other.is_output => Ok(true),
                _ => Err(overlap_error(out, other.value, other.is_output)),
            };
        }
        let (Some(a), Some(b)) = (self.places(out), self.places(other.value)) else { return Ok(false) };
        let may_share = rule == AliasRule::InPlace && !other.is_output && self.is_alike(out, other.value);
        let is_bad = |x: &ByteRegion, y: &ByteRegion| x.overlaps(y) && !(may_share && x == y);
        let bad = a.iter().map(|x| b.iter().filter(|y| is_bad(x, y)).count()).sum::<usize>();
        match bad {
            0 => Ok(true),
            n if n == a.len().saturating_mul(b.len()) => {
                Err(overlap_error(out, other.value, other.is_output))
            }
            _ => Ok(false),
        }
    }

    /// Same extents and memory order, so that equal positions are equal bytes.
    fn is_alike(&self, a: ValueId, b: ValueId) -> bool {
        match (self.tensor(a), self.tensor(b)) {
            (Some(a), Some(b)) => a.spec.shape == b.spec.shape && a.spec.dim_order == b.spec.dim_order,
            _ => false,
        }
    }
}

/// The error of a call whose output overlaps another argument.
#[cold]
pub(crate) fn overlap_error(output: ValueId, other: ValueId, is_output: bool) -> Error {
    let role = if is_output { "another output" } else { "an input" };
    Error::program(format!("the memory plan lets an output overlap {role} of the same call"))
        .expected("disjoint memory (this kernel does not work in place here)")
        .got(format!("values {} and {}", output.0, other.0))
        .hint("the file is damaged or its memory plan is wrong; export the model again")
}

/// What `rule` means for an output and argument `position`.
pub(crate) fn pair_rule(rule: AliasRule, position: usize) -> AliasRule {
    match (rule, position) {
        (AliasRule::Update, 0) => AliasRule::InPlace,
        (AliasRule::Update, _) => AliasRule::None,
        _ => rule,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{ConstantRef, Placement, ValueIr};
    use pteron_core::{ConstantKey, DType, Device, ErrorKind, TensorSpec};

    fn tensor(placement: Placement<ConstantRef>) -> ValueIr {
        let spec = TensorSpec::contiguous(DType::Float32, &[4]).unwrap();
        TensorIr { spec, placement, device: Device::Cpu, name: None }.into()
    }

    fn planned(offset: usize) -> ValueIr {
        tensor(Placement::Planned { arena: 0, offset, initial: None })
    }

    fn method(values: Vec<ValueIr>, inputs: &[u32]) -> MethodIr {
        MethodIr {
            name: "m".into(),
            values,
            inputs: inputs.iter().map(|v| ValueId(*v)).collect(),
            arenas: vec![64],
            ..MethodIr::default()
        }
    }

    fn roles(input: u32, output: u32) -> [ArgumentRole; 2] {
        [
            ArgumentRole { value: ValueId(input), is_output: false },
            ArgumentRole { value: ValueId(output), is_output: true },
        ]
    }

    #[test]
    fn disjoint_same_and_partial() {
        let ir = method(vec![planned(0), planned(16), planned(8), planned(0)], &[]);
        let map = MemoryMap::new(&ir, &[]);
        assert!(map.is_safe(&roles(0, 1), AliasRule::None).unwrap());
        let e = map.is_safe(&roles(0, 2), AliasRule::InPlace).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Program);
        assert!(e.to_string().contains("overlap an input"), "{e}");
        assert!(map.is_safe(&roles(0, 3), AliasRule::InPlace).unwrap());
        assert!(map.is_safe(&roles(0, 3), AliasRule::None).is_err());
        assert!(map.is_safe(&roles(0, 2), AliasRule::View).unwrap());
    }

    #[test]
    fn moves_make_it_a_question_for_run_time() {
        let ir = method(vec![planned(0), planned(16), planned(32)], &[]);
        let map = MemoryMap::new(&ir, &[(ValueId(0), ValueId(2))]);
        assert!(!map.is_safe(&roles(0, 2), AliasRule::None).unwrap());
        assert!(map.is_safe(&roles(1, 2), AliasRule::None).unwrap());
    }

    #[test]
    fn constants_are_never_written_and_written_inputs_are_known() {
        let key = ConstantKey { origin: 0, offset: 0, nbytes: 16 };
        let ir = method(
            vec![
                tensor(Placement::Constant(ConstantRef::Stored(key))),
                tensor(Placement::Unplanned),
                planned(0),
                planned(16),
            ],
            &[1],
        );
        let map = MemoryMap::new(&ir, &[(ValueId(1), ValueId(2)), (ValueId(0), ValueId(3))]);
        assert!(map.is_safe(&roles(1, 0), AliasRule::None).is_err());
        assert_eq!(map.inputs_written_by(&roles(0, 2)), [ValueId(1)]);
        assert!(!map.is_safe(&roles(1, 3), AliasRule::None).unwrap());
    }
}
