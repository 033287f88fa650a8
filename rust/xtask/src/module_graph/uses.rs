//! The paths that a file uses, each with the module around it and its line.

use super::resolve::Definition;
use super::source_tree::{ModulePath, SourceTree, is_test, leaves};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, Visibility};

/// A file that is used, with the line and the path that say so.
pub(super) struct Use {
    pub(super) file: usize,
    pub(super) line: usize,
    pub(super) path: String,
}

/// All uses of one file of the tree.
pub(super) fn uses_of(tree: &SourceTree, file: usize) -> Vec<Use> {
    let source = &tree.files[file];
    let mut visitor = Visitor { tree, module: source.module.clone(), uses: Vec::new() };
    visitor.visit_file(&source.syntax);
    visitor.uses
}

struct Visitor<'a> {
    tree: &'a SourceTree,
    module: ModulePath,
    uses: Vec<Use>,
}

impl Visitor<'_> {
    fn add(&mut self, path: &[String], line: usize) {
        if let Some(Definition::Item(file)) = self.tree.resolve(&self.module, path) {
            self.uses.push(Use { file, line, path: path.join("::") });
        }
    }

    /// Paths among the tokens of a macro, which no parser knows.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        let mut is_member = false;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.add(&std::mem::take(&mut path), line);
                    }
                    if !is_member {
                        line = if path.is_empty() { ident.span().start().line } else { line };
                        path.push(ident.to_string());
                    }
                    (colons, is_member) = (0, false);
                }
                TokenTree::Punct(p) if p.as_char() == ':' => colons += 1,
                other => {
                    self.add(&std::mem::take(&mut path), line);
                    colons = 0;
                    is_member = matches!(&other, TokenTree::Punct(p) if p.as_char() == '.');
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.add(&path, line);
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.content.is_some() {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        // What is only passed on is used where somebody names it.
        if matches!(item.vis, Visibility::Inherited) {
            for (path, name) in leaves(&item.tree, &mut Vec::new()) {
                if name.is_some() {
                    self.add(&path, item.use_token.span.start().line);
                }
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if let Some(first) = path.segments.first() {
            self.add(&names, first.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let names: Vec<String> = call.path.segments.iter().map(|s| s.ident.to_string()).collect();
        let line = call.path.segments.first().map_or(0, |s| s.ident.span().start().line);
        match (names.as_slice(), self.tree.resolve(&self.module, &names)) {
            ([name], None) => {
                if let Some(file) = self.tree.textual_macro(&self.module, name) {
                    self.uses.push(Use { file, line, path: format!("{name}!") });
                }
            }
            _ => self.add(&names, line),
        }
        self.add_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}
