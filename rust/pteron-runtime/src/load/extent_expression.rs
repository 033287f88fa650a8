//! Extents that are computed from others, as `pteron.interface` states them: `2*s0 + 1`.
//!
//! Grammar, with Python's precedence and meaning: integers, symbols, `+ - * // %`, a minus sign in
//! front, parentheses, `max(a, b, ...)`, `min(a, b, ...)`. The text comes from a file: its length, its
//! nesting and the number of its operations are limited, and arithmetic is checked.

use pteron_core::error::printable;
use pteron_core::{Error, Result};

/// Longest text of an expression, in bytes.
const MOST_BYTES: usize = 4096;
/// Most numbers, symbols and operations of an expression.
const MOST_NODES: usize = 512;
/// Deepest nesting of an expression, and the most intermediate results.
const MOST_DEPTH: usize = 32;

/// One step of an evaluation over a stack of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Number(i64),
    Symbol(usize),
    Add,
    Subtract,
    Multiply,
    FloorDivide,
    Modulo,
    Negate,
    Maximum,
    Minimum,
}

/// A parsed expression over numbered symbols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExtentExpression {
    // In reverse Polish order.
    nodes: Vec<Node>,
}

/// `factor * symbol + offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Linear {
    pub symbol: usize,
    pub factor: i64,
    pub offset: i64,
}

impl ExtentExpression {
    /// Parses `text`; `number` gives each symbol its number.
    pub(crate) fn parse(text: &str, number: &mut dyn FnMut(&str) -> usize) -> Result<ExtentExpression> {
        if text.len() > MOST_BYTES {
            return Err(refused(text, "it is too long"));
        }
        let mut parser = Parser { text, rest: text, nodes: Vec::new(), depth: 0, number };
        parser.sum()?;
        parser.space();
        if !parser.rest.is_empty() {
            return Err(refused(text, "there is something behind it"));
        }
        let expression = ExtentExpression { nodes: parser.nodes };
        let mut depth = 0usize;
        for node in &expression.nodes {
            depth = match node {
                Node::Number(_) | Node::Symbol(_) => depth.saturating_add(1),
                Node::Negate => depth,
                _ => depth.saturating_sub(1),
            };
            if depth > MOST_DEPTH {
                return Err(refused(text, "it is nested too deeply"));
            }
        }
        Ok(expression)
    }

    /// The symbols, each as often as it appears.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = usize> + '_ {
        self.nodes.iter().filter_map(|n| if let Node::Symbol(s) = n { Some(*s) } else { None })
    }

    /// The value; `None` where a symbol has none, and where the arithmetic leaves 64 bits or divides
    /// by zero.
    pub(crate) fn value(&self, symbol: impl Fn(usize) -> Option<i64>) -> Option<i64> {
        let mut stack = [0i64; MOST_DEPTH];
        let mut len = 0usize;
        for node in &self.nodes {
            let value = match node {
                Node::Number(n) => *n,
                Node::Symbol(s) => symbol(*s)?,
                Node::Negate => {
                    len = len.checked_sub(1)?;
                    stack.get(len)?.checked_neg()?
                }
                operation => {
                    len = len.checked_sub(2)?;
                    let (a, b) = (*stack.get(len)?, *stack.get(len.checked_add(1)?)?);
                    match operation {
                        Node::Add => a.checked_add(b)?,
                        Node::Subtract => a.checked_sub(b)?,
                        Node::Multiply => a.checked_mul(b)?,
                        Node::FloorDivide => floor_divide(a, b)?,
                        Node::Modulo => a.checked_sub(floor_divide(a, b)?.checked_mul(b)?)?,
                        Node::Maximum => a.max(b),
                        _ => a.min(b),
                    }
                }
            };
            *stack.get_mut(len)? = value;
            len = len.checked_add(1)?;
        }
        stack.first().copied().filter(|_| len == 1)
    }

    /// The expression as a multiple of one symbol plus a number, if it is that.
    pub(crate) fn linear(&self) -> Option<Linear> {
        let is_linear = self
            .nodes
            .iter()
            .all(|n| !matches!(n, Node::FloorDivide | Node::Modulo | Node::Maximum | Node::Minimum));
        let mut symbols = self.symbols();
        let symbol = symbols.next()?;
        if !is_linear || symbols.next().is_some() {
            return None;
        }
        // One symbol that appears once, under sums and products only.
        let offset = self.value(|_| Some(0))?;
        let factor = self.value(|_| Some(1))?.checked_sub(offset)?;
        (factor != 0).then_some(Linear { symbol, factor, offset })
    }
}

impl Linear {
    /// The symbol's value where the whole is `value`; `None` where that is no whole number.
    pub(crate) fn solve(&self, value: i64) -> Option<i64> {
        let product = value.checked_sub(self.offset)?;
        if product.checked_rem(self.factor)? != 0 {
            return None;
        }
        product.checked_div(self.factor)
    }
}

fn floor_divide(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    let is_rounded_up = a.checked_rem(b)? != 0 && (a < 0) != (b < 0);
    if is_rounded_up { quotient.checked_sub(1) } else { Some(quotient) }
}

#[cold]
fn refused(text: &str, why: &str) -> Error {
    let shown: String = text.chars().take(80).collect();
    Error::program(format!("an extent is stated by an expression that cannot be read: {why}"))
        .expected("integers, symbols, + - * // %, parentheses, max, min")
        .got(printable(&shown))
        .hint("use a newer pteron, or export the model again with this one")
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    nodes: Vec<Node>,
    depth: usize,
    number: &'a mut dyn FnMut(&str) -> usize,
}

impl Parser<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches(' ');
    }

    fn take(&mut self, token: &str) -> bool {
        self.space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn push(&mut self, node: Node) -> Result<()> {
        if self.nodes.len() >= MOST_NODES {
            return Err(refused(self.text, "it is too long"));
        }
        self.nodes.push(node);
        Ok(())
    }

    fn sum(&mut self) -> Result<()> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > MOST_DEPTH {
            return Err(refused(self.text, "it is nested too deeply"));
        }
        self.product()?;
        loop {
            let operation = match () {
                () if self.take("+") => Node::Add,
                () if self.take("-") => Node::Subtract,
                () => break,
            };
            self.product()?;
            self.push(operation)?;
        }
        self.depth = self.depth.saturating_sub(1);
        Ok(())
    }

    fn product(&mut self) -> Result<()> {
        self.factor()?;
        loop {
            let operation = match () {
                () if self.take("//") => Node::FloorDivide,
                () if self.take("*") => Node::Multiply,
                () if self.take("%") => Node::Modulo,
                () => return Ok(()),
            };
            self.factor()?;
            self.push(operation)?;
        }
    }

    fn factor(&mut self) -> Result<()> {
        let mut is_negative = false;
        while self.take("-") {
            is_negative = !is_negative;
        }
        if self.take("(") {
            self.sum()?;
            self.close()?;
        } else {
            let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
            self.rest = rest;
            self.word(word)?;
        }
        if is_negative { self.push(Node::Negate) } else { Ok(()) }
    }

    fn word(&mut self, word: &str) -> Result<()> {
        let function = match word {
            "max" => Some(Node::Maximum),
            "min" => Some(Node::Minimum),
            _ => None,
        };
        if let (Some(function), true) = (function, self.take("(")) {
            self.sum()?;
            while self.take(",") {
                self.sum()?;
                self.push(function)?;
            }
            return self.close();
        }
        match word.chars().next() {
            None => Err(refused(self.text, "a number or a symbol is missing")),
            Some('0'..='9') => match word.parse() {
                Ok(n) => self.push(Node::Number(n)),
                Err(_) => Err(refused(self.text, "a number in it is none")),
            },
            Some(_) => {
                let symbol = (self.number)(word);
                self.push(Node::Symbol(symbol))
            }
        }
    }

    fn close(&mut self) -> Result<()> {
        if self.take(")") { Ok(()) } else { Err(refused(self.text, "a parenthesis is not closed")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<ExtentExpression> {
        ExtentExpression::parse(text, &mut |name| name.len() - 1)
    }

    fn value(text: &str, a: i64) -> Option<i64> {
        parse(text).unwrap().value(|s| [Some(a), Some(7)].get(s).copied().flatten())
    }

    #[test]
    fn pythons_arithmetic() {
        assert_eq!(value("2*a + 1", 5), Some(11));
        assert_eq!(value("1 - -a*3 // 2", 5), Some(9));
        assert_eq!(value("-7 // 2 + -7 % 4", 0), Some(-3));
        assert_eq!(value("max(a, 4, 2*bb) - min(a, 3)", 5), Some(11));
        assert_eq!(value("((a))*(a - 1)", 5), Some(20));
        assert_eq!(value("a // (a - 5)", 5), None);
        assert_eq!(value("a*a", i64::MAX), None);
        assert_eq!(value("ccc", 5), None);
    }

    #[test]
    fn multiples_of_one_symbol_are_solved() {
        let linear = parse("3*(a - 2) + 1").unwrap().linear().unwrap();
        assert_eq!((linear.factor, linear.offset), (3, -5));
        assert_eq!((linear.solve(7), linear.solve(8)), (Some(4), None));
        for other in ["a*a", "a // 2", "a + bb", "7", "0*a", "max(a, 1)"] {
            assert_eq!(parse(other).unwrap().linear(), None, "{other}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        let deep = "(".repeat(40) + "a" + &")".repeat(40);
        let right = "a + (".repeat(31) + "a" + &")".repeat(31);
        let long = "a+".repeat(600) + "a";
        let huge = "a".repeat(5000);
        for text in
            ["", "2*", "(a", "a)", "a b", "a**2", "f(a)", "max(a", "99999999999999999999", "1a", "a/2"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in [deep, long, huge] {
            assert!(parse(&text).is_err());
        }
        assert!(parse(&right).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-c0-9+*/%(), -]{0,60}|.{0,40}", a in any::<i64>()) {
            if let Ok(e) = parse(&text) {
                let _ = e.value(|_| Some(a));
                if let Some(l) = e.linear() {
                    let _ = l.solve(a);
                }
            }
        }
    }
}
