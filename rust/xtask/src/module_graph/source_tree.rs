//! The modules of one crate root, with the names that each defines, imports and re-exports.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use syn::{Attribute, Expr, Item, Lit, Meta, UseTree};

/// The names on the way to a module, from the root of the crate.
pub(super) type ModulePath = Vec<String>;

/// One module: a file, or a part of one.
#[derive(Default)]
pub(super) struct Module {
    /// Index in [`SourceTree::files`].
    pub(super) file: usize,
    /// Names of types, functions, constants, traits.
    pub(super) items: HashSet<String>,
    /// Names of `macro_rules!`.
    pub(super) macros: HashSet<String>,
    pub(super) children: HashSet<String>,
    /// By the name in this module, the path as written.
    pub(super) imports: HashMap<String, Vec<String>>,
    /// Paths with a `*` behind them.
    pub(super) globs: Vec<Vec<String>>,
}

/// One file and what it parses to.
pub(super) struct SourceFile {
    pub(super) path: PathBuf,
    pub(super) module: ModulePath,
    pub(super) syntax: Rc<syn::File>,
}

/// Everything that one crate root reaches through `mod`.
#[derive(Default)]
pub(super) struct SourceTree {
    pub(super) files: Vec<SourceFile>,
    pub(super) modules: HashMap<ModulePath, Module>,
}

impl SourceTree {
    /// Reads the root file and every file below it. Fails on a file that is missing or does not parse.
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let mut tree = Self::default();
        let below = root.parent().ok_or("a root has a folder")?.to_owned();
        tree.add_file(root, &below, Vec::new())?;
        Ok(tree)
    }

    fn add_file(&mut self, path: &Path, below: &Path, module: ModulePath) -> Result<(), String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let syntax = Rc::new(syn::parse_file(&text).map_err(|e| format!("{}: {e}", path.display()))?);
        let file = self.files.len();
        self.files.push(SourceFile {
            path: path.to_owned(),
            module: module.clone(),
            syntax: Rc::clone(&syntax),
        });
        self.add_module(&syntax.items, file, below, module)
    }

    fn add_module(
        &mut self,
        items: &[Item],
        file: usize,
        below: &Path,
        path: ModulePath,
    ) -> Result<(), String> {
        let mut module = Module { file, ..Module::default() };
        for item in items {
            match item {
                Item::Mod(child) if !is_test(&child.attrs) => {
                    let name = child.ident.to_string();
                    module.children.insert(name.clone());
                    let mut child_path = path.clone();
                    child_path.push(name.clone());
                    match &child.content {
                        Some((_, items)) => self.add_module(items, file, &below.join(&name), child_path)?,
                        None => self.add_child_file(file, below, &name, &child.attrs, child_path)?,
                    }
                }
                Item::Use(uses) if !is_test(&uses.attrs) => {
                    add_imports(&uses.tree, &mut Vec::new(), &mut module)
                }
                Item::Macro(m) if !is_test(&m.attrs) => {
                    module.macros.extend(m.ident.as_ref().map(ToString::to_string));
                }
                other => module.items.extend(defined_name(other)),
            }
        }
        self.modules.insert(path, module);
        Ok(())
    }

    fn add_child_file(
        &mut self,
        parent: usize,
        below: &Path,
        name: &str,
        attributes: &[Attribute],
        module: ModulePath,
    ) -> Result<(), String> {
        let file = match path_attribute(attributes) {
            Some(path) => self.files[parent].path.parent().unwrap_or(below).join(path),
            None if below.join(format!("{name}.rs")).is_file() => below.join(format!("{name}.rs")),
            None => below.join(name).join("mod.rs"),
        };
        let its_folder = match file.file_name() {
            Some(f) if f == "mod.rs" => file.parent().unwrap_or(below).to_owned(),
            _ => file.with_extension(""),
        };
        self.add_file(&file, &its_folder, module)
    }
}

/// Is this compiled for tests alone?
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| match &a.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test" || condition.starts_with("all (test") || condition.starts_with("all(test")
        }
        meta => meta.path().is_ident("test"),
    })
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|a| match &a.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}

fn defined_name(item: &Item) -> Option<String> {
    let (name, attributes) = match item {
        Item::Const(i) => (&i.ident, &i.attrs),
        Item::Enum(i) => (&i.ident, &i.attrs),
        Item::Fn(i) => (&i.sig.ident, &i.attrs),
        Item::Static(i) => (&i.ident, &i.attrs),
        Item::Struct(i) => (&i.ident, &i.attrs),
        Item::Trait(i) => (&i.ident, &i.attrs),
        Item::TraitAlias(i) => (&i.ident, &i.attrs),
        Item::Type(i) => (&i.ident, &i.attrs),
        Item::Union(i) => (&i.ident, &i.attrs),
        _ => return None,
    };
    (!is_test(attributes)).then(|| name.to_string())
}

/// Adds what a `use` brings into a module, also one inside a function: names of a function's own imports rarely mean
/// something else elsewhere in its file.
pub(super) fn add_imports(tree: &UseTree, before: &mut Vec<String>, module: &mut Module) {
    for (path, name) in leaves(tree, before) {
        match name {
            Some(name) => {
                module.imports.entry(name).or_insert(path);
            }
            None => module.globs.push(path),
        }
    }
}

/// The paths of a `use`, each with the name that it gets; a glob has none.
pub(super) fn leaves(tree: &UseTree, before: &mut Vec<String>) -> Vec<(Vec<String>, Option<String>)> {
    let with = |before: &[String], last: &str| {
        let mut path = before.to_vec();
        if last != "self" || path.is_empty() {
            path.push(last.to_owned());
        }
        path
    };
    match tree {
        UseTree::Path(p) => {
            before.push(p.ident.to_string());
            let found = leaves(&p.tree, before);
            before.pop();
            found
        }
        UseTree::Name(n) => {
            let path = with(before, &n.ident.to_string());
            let name = path.last().cloned();
            vec![(path, name)]
        }
        UseTree::Rename(r) => vec![(with(before, &r.ident.to_string()), Some(r.rename.to_string()))],
        UseTree::Glob(_) => vec![(before.clone(), None)],
        UseTree::Group(g) => g.items.iter().flat_map(|t| leaves(t, before)).collect(),
    }
}
