//! Strongly connected components: modules that all reach each other.

use super::graph::{Edge, ModuleGraph};
use std::fmt;

/// Modules that all reach each other, in an order in which few edges go back.
pub struct Component<'a> {
    graph: &'a ModuleGraph,
    /// Indices into [`ModuleGraph::files`]; those in front use those behind.
    pub modules: Vec<usize>,
}

impl Component<'_> {
    /// The edges that go back in the order of the modules. Without them there is no circle.
    pub fn closing_edges(&self) -> Vec<(usize, usize, &Edge)> {
        let mut found = Vec::new();
        for (at, &to) in self.modules.iter().enumerate() {
            for &from in &self.modules[at..] {
                found.extend(self.graph.edge(from, to).map(|edge| (from, to, edge)));
            }
        }
        found
    }
}

impl fmt::Display for Component<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |module: usize| self.graph.files[module].display();
        writeln!(f, "{} modules reach each other:", self.modules.len())?;
        for &module in &self.modules {
            writeln!(f, "    {}", name(module))?;
        }
        writeln!(f, "  closed by:")?;
        for (from, to, edge) in self.closing_edges() {
            writeln!(f, "    {}:{} -> {} ({})", name(from), edge.line, name(to), edge.path)?;
        }
        Ok(())
    }
}

/// All components of a graph, the largest first. A module that is in no circle is a component of one.
pub fn components(graph: &ModuleGraph) -> Vec<Component<'_>> {
    let n = graph.files.len();
    let mut search = Search {
        graph,
        order: vec![None; n],
        lowest: vec![0; n],
        on_stack: vec![false; n],
        stack: vec![],
        visited: 0,
        found: vec![],
    };
    for module in 0..n {
        if search.order[module].is_none() {
            search.visit(module);
        }
    }
    let mut found: Vec<Component<'_>> = search
        .found
        .into_iter()
        .map(|modules| Component { graph, modules: with_few_back(graph, modules) })
        .collect();
    found.sort_by_key(|c| std::cmp::Reverse(c.modules.len()));
    found
}

/// Tarjan, "Depth-first search and linear graph algorithms" (1972).
struct Search<'a> {
    graph: &'a ModuleGraph,
    order: Vec<Option<usize>>,
    lowest: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    visited: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn visit(&mut self, module: usize) {
        let number = self.visited;
        self.visited += 1;
        self.order[module] = Some(number);
        self.lowest[module] = number;
        self.stack.push(module);
        self.on_stack[module] = true;
        for &to in self.graph.edges.get(&module).into_iter().flat_map(|e| e.keys()) {
            match self.order[to] {
                None => {
                    self.visit(to);
                    self.lowest[module] = self.lowest[module].min(self.lowest[to]);
                }
                Some(its) if self.on_stack[to] => self.lowest[module] = self.lowest[module].min(its),
                Some(_) => {}
            }
        }
        if self.lowest[module] == number {
            let at = self.stack.iter().position(|&m| m == module).unwrap_or(0);
            let component = self.stack.split_off(at);
            for &m in &component {
                self.on_stack[m] = false;
            }
            self.found.push(component);
        }
    }
}

/// Eades, Lin and Smyth, "A fast and effective heuristic for the feedback arc set problem" (1993): sinks to the back,
/// sources to the front, else the module with the most edges out and the fewest in to the front.
fn with_few_back(graph: &ModuleGraph, mut left: Vec<usize>) -> Vec<usize> {
    let (mut front, mut back) = (Vec::new(), Vec::new());
    while !left.is_empty() {
        let degrees = |module: usize| {
            let out = left.iter().filter(|&&to| graph.edge(module, to).is_some()).count();
            let into = left.iter().filter(|&&from| graph.edge(from, module).is_some()).count();
            (out, into)
        };
        let score = |module: usize| {
            let (out, into) = degrees(module);
            if into == 0 { isize::MAX } else { out as isize - into as isize }
        };
        if let Some(at) = left.iter().position(|&m| degrees(m).0 == 0) {
            back.push(left.remove(at));
        } else if let Some(at) = (0..left.len()).max_by_key(|&at| score(left[at])) {
            front.push(left.remove(at));
        }
    }
    back.reverse();
    front.extend(back);
    front
}
