//! Operator schemas in PyTorch's syntax, parsed once per kernel table: they say which argument is of
//! which kind and which are outputs, so that load can check every call.

use crate::{Error, Result, ValueKind};

/// Kind of a schema argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are named after what they are")]
pub enum ArgKind {
    Tensor,
    OptionalTensor,
    TensorList,
    OptionalTensorList,
    Int,
    OptionalInt,
    Double,
    OptionalDouble,
    Bool,
    OptionalBool,
    Scalar,
    OptionalScalar,
    String,
    OptionalString,
    IntList,
    OptionalIntList,
    DoubleList,
    OptionalDoubleList,
    BoolList,
    /// `ScalarType`, `Layout`, `Device`, `MemoryFormat`, `Generator` with or without `?`: an int or None.
    OptionalEnum,
    /// Anything: of an operator that is known by its calls alone. No schema's text has it.
    Any,
}

impl ArgKind {
    fn parse(text: &str) -> Option<Self> {
        // `Tensor(a!)` and `Tensor(a!)[]` lose their alias notes.
        let mut t = String::new();
        let mut depth = 0;
        for c in text.chars() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                c if depth == 0 => t.push(c),
                _ => {}
            }
        }
        // `int[2]` is `int[]`.
        let t = match t.find('[') {
            Some(at) => {
                let close = t[at..].find(']')? + at;
                format!("{}[]{}", &t[..at], &t[close + 1..])
            }
            None => t,
        };
        Some(match t.as_str() {
            "Tensor" => ArgKind::Tensor,
            "Tensor?" => ArgKind::OptionalTensor,
            "Tensor[]" => ArgKind::TensorList,
            "Tensor?[]" => ArgKind::OptionalTensorList,
            "int" | "SymInt" => ArgKind::Int,
            "int?" | "SymInt?" => ArgKind::OptionalInt,
            "float" => ArgKind::Double,
            "float?" => ArgKind::OptionalDouble,
            "bool" => ArgKind::Bool,
            "bool?" => ArgKind::OptionalBool,
            "Scalar" => ArgKind::Scalar,
            "Scalar?" => ArgKind::OptionalScalar,
            "str" => ArgKind::String,
            "str?" => ArgKind::OptionalString,
            "int[]" | "SymInt[]" => ArgKind::IntList,
            "int[]?" | "SymInt[]?" => ArgKind::OptionalIntList,
            "float[]" => ArgKind::DoubleList,
            "float[]?" => ArgKind::OptionalDoubleList,
            "bool[]" => ArgKind::BoolList,
            "ScalarType" | "ScalarType?" | "Layout" | "Layout?" | "Device" | "Device?" | "MemoryFormat"
            | "MemoryFormat?" | "Generator" | "Generator?" => ArgKind::OptionalEnum,
            _ => return None,
        })
    }

    /// May a value of kind `value` stand here?
    pub fn accepts(self, value: ValueKind) -> bool {
        use ValueKind as V;
        match self {
            ArgKind::Tensor => value == V::Tensor,
            ArgKind::OptionalTensor => matches!(value, V::Tensor | V::None),
            ArgKind::TensorList => value == V::TensorList,
            ArgKind::OptionalTensorList => matches!(value, V::TensorList | V::OptionalTensorList),
            ArgKind::Int => matches!(value, V::Int | V::Bool),
            ArgKind::OptionalInt => matches!(value, V::Int | V::Bool | V::None),
            ArgKind::Double => matches!(value, V::Double | V::Int),
            ArgKind::OptionalDouble => matches!(value, V::Double | V::Int | V::None),
            ArgKind::Bool => value == V::Bool,
            ArgKind::OptionalBool => matches!(value, V::Bool | V::None),
            ArgKind::Scalar => matches!(value, V::Int | V::Double | V::Bool),
            ArgKind::OptionalScalar => matches!(value, V::Int | V::Double | V::Bool | V::None),
            ArgKind::String => value == V::String,
            ArgKind::OptionalString => matches!(value, V::String | V::None),
            ArgKind::IntList => value == V::IntList,
            ArgKind::OptionalIntList => matches!(value, V::IntList | V::None),
            ArgKind::DoubleList => value == V::DoubleList,
            ArgKind::OptionalDoubleList => matches!(value, V::DoubleList | V::None),
            ArgKind::BoolList => value == V::BoolList,
            ArgKind::OptionalEnum => matches!(value, V::Int | V::Bool | V::None),
            ArgKind::Any => true,
        }
    }

    /// As written in a schema.
    pub fn name(self) -> &'static str {
        match self {
            ArgKind::Tensor => "Tensor",
            ArgKind::OptionalTensor => "Tensor?",
            ArgKind::TensorList => "Tensor[]",
            ArgKind::OptionalTensorList => "Tensor?[]",
            ArgKind::Int => "int",
            ArgKind::OptionalInt => "int?",
            ArgKind::Double => "float",
            ArgKind::OptionalDouble => "float?",
            ArgKind::Bool => "bool",
            ArgKind::OptionalBool => "bool?",
            ArgKind::Scalar => "Scalar",
            ArgKind::OptionalScalar => "Scalar?",
            ArgKind::String => "str",
            ArgKind::OptionalString => "str?",
            ArgKind::IntList => "int[]",
            ArgKind::OptionalIntList => "int[]?",
            ArgKind::DoubleList => "float[]",
            ArgKind::OptionalDoubleList => "float[]?",
            ArgKind::BoolList => "bool[]",
            ArgKind::OptionalEnum => "enum?",
            ArgKind::Any => "anything",
        }
    }
}

/// One argument of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaArg {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: ArgKind,
    /// Is it written (`Tensor(a!)`)?
    pub is_output: bool,
    /// Is it written and read: `self` of an in-place operator, or one that inputs stand behind, as behind the cache of
    /// `update_cache`? Outputs alone stand behind all inputs.
    pub is_updated: bool,
}

/// An operator's out-variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// `aten::add.out`, or `aten::relu` without an overload name.
    pub name: String,
    /// Arguments in order, outputs included.
    pub args: Vec<SchemaArg>,
    /// Number of returns.
    pub returns: usize,
    /// The kind of a scalar return (`executorch_prim::add.Scalar`), which is appended to the
    /// instruction's arguments as a value that is overwritten.
    pub has_scalar_return: bool,
}

impl Schema {
    /// Parses `ns::op.overload(args) -> returns`.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |what: &str| Error::internal(format!("operator schema: {what}")).got(text.to_string());
        let open = text.find('(').ok_or_else(|| bad("no argument list"))?;
        let arrow = text.rfind("->").ok_or_else(|| bad("no returns"))?;
        let inside = text.get(open + 1..arrow).ok_or_else(|| bad("no argument list before the returns"))?;
        let (inside, rest) = inside.rsplit_once(')').ok_or_else(|| bad("argument list is not closed"))?;
        if !rest.trim().is_empty() {
            return Err(bad("something between arguments and returns"));
        }
        let mut args: Vec<SchemaArg> = Vec::new();
        let mut is_behind_star = false;
        for part in split_top(inside) {
            let part = part.trim();
            is_behind_star |= part == "*";
            if part.is_empty() || part == "*" {
                continue;
            }
            let declaration = part.split('=').next().unwrap_or(part).trim();
            let (kind, name) = declaration.rsplit_once(' ').ok_or_else(|| bad("argument without a name"))?;
            let is_output = kind.contains('!');
            if !is_output {
                args.iter_mut().for_each(|before| before.is_updated |= before.is_output && !is_behind_star);
            }
            args.push(SchemaArg {
                name: name.to_string(),
                kind: ArgKind::parse(kind.trim()).ok_or_else(|| bad(&format!("unknown type '{kind}'")))?,
                is_output,
                is_updated: is_output && args.is_empty(),
            });
        }
        let returns = text[arrow + 2..].trim();
        let inner = returns.strip_prefix('(').and_then(|r| r.strip_suffix(')')).unwrap_or(returns);
        let parts: Vec<_> = split_top(inner).into_iter().filter(|p| !p.trim().is_empty()).collect();
        Ok(Schema {
            name: text[..open].trim().to_string(),
            args,
            returns: parts.len(),
            has_scalar_return: parts.len() == 1 && !parts[0].contains("Tensor"),
        })
    }

    /// Number of arguments that an instruction calling this operator carries: the schema's own,
    /// and the return (or one list for several returns) once more. A written list counts as returned
    /// although PyTorch's schema then says `-> ()`: exporters append it like any other result.
    pub fn instruction_arity(&self) -> usize {
        let has_list_output = self.args.iter().any(|a| a.is_output && a.kind == ArgKind::TensorList);
        self.args.len() + usize::from(self.returns > 0 || has_list_output)
    }

    /// Is any argument updated?
    pub fn updates(&self) -> bool {
        self.args.iter().any(|a| a.is_updated)
    }

    /// Positions of the written arguments.
    pub fn outputs(&self) -> impl Iterator<Item = usize> + '_ {
        self.args.iter().enumerate().filter(|(_, a)| a.is_output).map(|(i, _)| i)
    }
}

fn split_top(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_pytorch_syntax() {
        let s = Schema::parse(
            "aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
        )
        .unwrap();
        assert_eq!(s.name, "aten::add.out");
        assert_eq!(s.args.len(), 4);
        assert_eq!(s.args[2].kind, ArgKind::Scalar);
        assert_eq!(s.outputs().collect::<Vec<_>>(), [3]);
        assert_eq!(s.instruction_arity(), 5);
        assert!(!s.has_scalar_return);
    }

    #[test]
    fn lists_defaults_and_several_returns() {
        let s = Schema::parse(
            "aten::max.dim_max(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) max, Tensor(b!) max_values) \
             -> (Tensor(a!) values, Tensor(b!) indices)",
        )
        .unwrap();
        assert_eq!((s.returns, s.args.len(), s.instruction_arity()), (2, 5, 6));
        let s = Schema::parse(
            "aten::convolution.out(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[2] padding=[0, 0], \
             bool transposed, int[1]? dims=None, *, Tensor(a!) out) -> Tensor(a!)",
        )
        .unwrap();
        assert_eq!(s.args[4].kind, ArgKind::IntList);
        assert_eq!(s.args[6].kind, ArgKind::OptionalIntList);
        let s = Schema::parse(
            "aten::split_copy.Tensor_out(Tensor self, int n, int dim=0, *, Tensor(a!)[] out) -> ()",
        )
        .unwrap();
        assert_eq!((s.args[3].kind, s.args[3].is_output, s.returns), (ArgKind::TensorList, true, 0));
        assert_eq!(s.instruction_arity(), 5);
    }

    #[test]
    fn arguments_that_inputs_stand_behind_are_updated() {
        let updated = |text: &str| {
            let s = Schema::parse(text).unwrap();
            let found: Vec<usize> = (0..s.args.len()).filter(|i| s.args[*i].is_updated).collect();
            assert_eq!(s.updates(), !found.is_empty());
            found
        };
        assert!(
            updated("a::b.out(Tensor x, *, Tensor(a!) out0, Tensor(b!) out1) -> (Tensor(a!), Tensor(b!))")
                .is_empty()
        );
        assert_eq!(updated("a::b_(Tensor(a!) self) -> Tensor(a!)"), [0]);
        assert_eq!(
            updated("a::b.out(Tensor v, Tensor(a!) c, SymInt s, *, Tensor(b!) out) -> Tensor(b!)"),
            [1]
        );
    }

    #[test]
    fn scalar_returns() {
        let s = Schema::parse("executorch_prim::add.Scalar(Scalar a, Scalar b) -> Scalar").unwrap();
        assert!(s.has_scalar_return);
        assert_eq!(s.instruction_arity(), 3);
    }
}
