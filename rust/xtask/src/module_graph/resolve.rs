//! From a path as written to the file that defines what it names.

use super::source_tree::{ModulePath, SourceTree};

/// Re-exports of re-exports that are followed; a circle of globs ends here.
const MOST_STOPS: usize = 32;

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Definition {
    Module(ModulePath),
    /// Something that this file defines.
    Item(usize),
}

impl SourceTree {
    /// What a path in a module names; `None` is another crate, a local name, or something of the language.
    pub(super) fn resolve(&self, from: &ModulePath, path: &[String]) -> Option<Definition> {
        self.resolve_within(from, path, MOST_STOPS)
    }

    /// The file of a macro that is in scope by the order of the text: one that a module around this one defines.
    pub(super) fn textual_macro(&self, from: &ModulePath, name: &str) -> Option<usize> {
        (0..=from.len()).rev().find_map(|n| {
            let module = self.modules.get(from.get(..n)?)?;
            module.macros.contains(name).then_some(module.file)
        })
    }

    fn resolve_within(&self, from: &ModulePath, path: &[String], stops: usize) -> Option<Definition> {
        let stops = stops.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let mut found = match first.as_str() {
            "crate" => Definition::Module(Vec::new()),
            "self" => Definition::Module(from.clone()),
            "super" => Definition::Module(parent(from)?),
            name => self.lookup(from, name, rest.is_empty(), stops)?,
        };
        for (at, name) in rest.iter().enumerate() {
            let Definition::Module(module) = &found else { break };
            found = match name.as_str() {
                "super" => Definition::Module(parent(module)?),
                "self" => found,
                name => self.lookup(module, name, at + 1 == rest.len(), stops)?,
            };
        }
        Some(found)
    }

    /// A name in a module. A module and a function may share a name: the module is meant where the path goes on.
    fn lookup(&self, module: &ModulePath, name: &str, is_last: bool, stops: usize) -> Option<Definition> {
        let here = self.modules.get(module)?;
        let child = || {
            here.children.contains(name).then(|| {
                let mut path = module.clone();
                path.push(name.to_owned());
                Definition::Module(path)
            })
        };
        let other = || {
            if here.items.contains(name) || here.macros.contains(name) {
                return Some(Definition::Item(here.file));
            }
            let path = here.imports.get(name)?;
            // `use name;` of another crate, or a name that means itself, ends.
            (path.as_slice() != [name.to_owned()]).then(|| self.resolve_within(module, path, stops))?
        };
        let found = if is_last { other().or_else(child) } else { child().or_else(other) };
        found.or_else(|| self.through_globs(module, name, is_last, stops))
    }

    fn through_globs(
        &self,
        module: &ModulePath,
        name: &str,
        is_last: bool,
        stops: usize,
    ) -> Option<Definition> {
        let stops = stops.checked_sub(1)?;
        let globs = &self.modules.get(module)?.globs;
        globs.iter().find_map(|path| match self.resolve_within(module, path, stops)? {
            Definition::Module(m) if m != *module => self.lookup(&m, name, is_last, stops),
            _ => None,
        })
    }
}

fn parent(module: &ModulePath) -> Option<ModulePath> {
    let (_, parent) = module.split_last()?;
    Some(parent.to_vec())
}
