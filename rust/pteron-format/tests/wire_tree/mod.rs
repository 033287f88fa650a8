//! FlatBuffers from a tree of numbered fields, to make files that the writer cannot: without a required
//! field, with unknown kinds, in old layouts.

#![allow(dead_code, reason = "every test binary uses some of it")]

use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, UnionWIPOffset, Vector, WIPOffset};

/// A field of a table.
#[derive(Clone, Debug)]
pub enum Node {
    I8(i8),
    U8(u8),
    I32(i32),
    U32(u32),
    U64(u64),
    Text(&'static str),
    Bytes(Vec<u8>),
    I32s(Vec<i32>),
    I64s(Vec<i64>),
    U64s(Vec<u64>),
    Table(Vec<(u16, Node)>),
    Tables(Vec<Node>),
    /// The same table many times over.
    Repeated(Box<Node>, usize),
}

impl Node {
    /// The field `path` of nested tables; elements of a list count like fields.
    pub fn at(&mut self, path: &[u16]) -> &mut Node {
        let Some((first, rest)) = path.split_first() else { return self };
        match self {
            Node::Table(fields) => {
                let field = fields.iter_mut().find(|(id, _)| id == first).expect("a field of the tree");
                field.1.at(rest)
            }
            Node::Tables(list) => list[usize::from(*first)].at(rest),
            other => panic!("{other:?} has no parts"),
        }
    }

    /// Takes the field `id` out of this table.
    pub fn remove(&mut self, id: u16) {
        match self {
            Node::Table(fields) => fields.retain(|(i, _)| *i != id),
            other => panic!("{other:?} has no fields"),
        }
    }

    /// Adds the field `id` to this table.
    pub fn insert(&mut self, id: u16, node: Node) {
        match self {
            Node::Table(fields) => fields.push((id, node)),
            other => panic!("{other:?} has no fields"),
        }
    }

    /// The file: root offset, identifier, tables; no extended header.
    pub fn to_file(&self) -> Vec<u8> {
        let mut b = FlatBufferBuilder::new();
        let Built::Offset(root) = build(&mut b, self) else { panic!("the root is a table") };
        b.finish(root, Some("ET12"));
        b.finished_data().to_vec()
    }
}

enum Built {
    Scalar(Node),
    Offset(WIPOffset<UnionWIPOffset>),
}

fn build(b: &mut FlatBufferBuilder<'_>, node: &Node) -> Built {
    Built::Offset(match node {
        Node::Text(text) => b.create_string(text).as_union_value(),
        Node::Bytes(items) => vector(b.create_vector(items)),
        Node::I32s(items) => vector(b.create_vector(items)),
        Node::I64s(items) => vector(b.create_vector(items)),
        Node::U64s(items) => vector(b.create_vector(items)),
        Node::Table(fields) => {
            let built: Vec<_> = fields.iter().map(|(id, node)| (*id, build(b, node))).collect();
            let start = b.start_table();
            for (id, field) in built {
                let slot = 4 + 2 * id;
                match field {
                    Built::Offset(o) => b.push_slot_always(slot, o),
                    Built::Scalar(Node::I8(v)) => b.push_slot_always(slot, v),
                    Built::Scalar(Node::U8(v)) => b.push_slot_always(slot, v),
                    Built::Scalar(Node::I32(v)) => b.push_slot_always(slot, v),
                    Built::Scalar(Node::U32(v)) => b.push_slot_always(slot, v),
                    Built::Scalar(Node::U64(v)) => b.push_slot_always(slot, v),
                    Built::Scalar(other) => panic!("{other:?} is no scalar"),
                }
            }
            b.end_table(start).as_union_value()
        }
        Node::Tables(list) => {
            let tables: Vec<_> = list.iter().map(|n| table(b, n)).collect();
            vector::<ForwardsUOffset<UnionWIPOffset>>(b.create_vector(&tables))
        }
        Node::Repeated(node, count) => {
            let tables = vec![table(b, node); *count];
            vector::<ForwardsUOffset<UnionWIPOffset>>(b.create_vector(&tables))
        }
        scalar => return Built::Scalar(scalar.clone()),
    })
}

fn table(b: &mut FlatBufferBuilder<'_>, node: &Node) -> WIPOffset<UnionWIPOffset> {
    match build(b, node) {
        Built::Offset(o) => o,
        Built::Scalar(other) => panic!("{other:?} is no table"),
    }
}

fn vector<T>(offset: WIPOffset<Vector<'_, T>>) -> WIPOffset<UnionWIPOffset> {
    offset.as_union_value()
}

/// A value of kind `kind`.
pub fn value(kind: u8, fields: Vec<(u16, Node)>) -> Node {
    Node::Table(vec![(0, Node::U8(kind)), (1, Node::Table(fields))])
}

/// A float32 tensor of three elements with `extra` fields.
pub fn tensor(extra: Vec<(u16, Node)>) -> Node {
    let mut fields = vec![(0, Node::I8(6)), (2, Node::I32s(vec![3])), (3, Node::Bytes(vec![0]))];
    fields.extend(extra);
    value(5, fields)
}

/// An instruction of kind `kind`.
pub fn instruction(kind: u8, fields: Vec<(u16, Node)>) -> Node {
    Node::Table(vec![(0, Node::U8(kind)), (1, Node::Table(fields))])
}

/// `forward(x) = x + c` in the layout of files from before segments: the constant is in the program table.
pub fn old_style_add() -> Node {
    let call = instruction(1, vec![(0, Node::I32(0)), (1, Node::I32s(vec![0, 1, 2, 3, 3]))]);
    let plan = Node::Table(vec![
        (0, Node::Text("forward")),
        (1, Node::Table(vec![(0, Node::Text("")), (1, Node::Text(""))])),
        (
            2,
            Node::Tables(vec![
                tensor(vec![]),
                tensor(vec![(5, Node::U32(1))]),
                value(2, vec![]),
                tensor(vec![(6, Node::Table(vec![(0, Node::U32(1))]))]),
            ]),
        ),
        (3, Node::I32s(vec![0])),
        (4, Node::I32s(vec![3])),
        (5, Node::Tables(vec![Node::Table(vec![(2, Node::Tables(vec![call]))])])),
        (6, Node::Tables(vec![Node::Table(vec![(0, Node::Text("aten::add")), (1, Node::Text("out"))])])),
        (7, Node::Tables(vec![])),
        (8, Node::I64s(vec![0, 16])),
    ]);
    let constant: Vec<u8> = [1f32, 2.0, 3.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    Node::Table(vec![
        (1, Node::Tables(vec![plan])),
        (2, Node::Tables(vec![Node::Table(vec![]), Node::Table(vec![(0, Node::Bytes(constant))])])),
    ])
}
