//! `predicateHints`: conditions in the SQL that clients write and that Spark generates.
//!
//! A hand-written parser without regular expressions: one pass over the tokens, with bounded nesting and number of nodes.
//! Valid SQL that statistics cannot decide (functions, arithmetic, comparisons of columns) becomes an undecidable leaf,
//! so the rest of the condition still prunes. Invalid SQL is an error that skips the hint.

use super::json::shown;
use super::lexer::{Lexer, Token};
use crate::predicate::expression::{
    ColumnName, Comparison, Expression, Literal, MAX_DEPTH, MAX_NODES, Pattern, PatternRest,
};
use crate::schema::PrimitiveType;

/// The binding power of operators. A prefix NOT binds tighter than AND and looser than comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Power {
    Or,
    And,
    Not,
    Comparison,
    Sum,
    Product,
    Sign,
}

/// Parses a condition. Returns the reason if the text has none.
pub(crate) fn parse(sql: &str) -> Result<Expression, String> {
    let mut lexer = Lexer::new(sql);
    let token = lexer.next_token()?;
    let mut parser = Parser { lexer, token, start: 0, nodes_left: MAX_NODES, depth_left: MAX_DEPTH };
    let expression = parser.expression(Power::Or)?;
    match parser.token {
        Token::End => Ok(expression),
        _ => Err(parser.unexpected()),
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token.
    token: Token<'a>,
    /// Its byte position.
    start: usize,
    nodes_left: usize,
    depth_left: usize,
}

impl<'a> Parser<'a> {
    fn advance(&mut self) -> Result<Token<'a>, String> {
        self.start = self.lexer.start_of_next();
        let next = self.lexer.next_token()?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    fn unexpected(&self) -> String {
        match &self.token {
            Token::End => "the condition ends too early".into(),
            Token::Word(word) => format!("unexpected {} at {}", shown(word), self.start),
            Token::Symbol(symbol) => format!("unexpected '{symbol}' at {}", self.start),
            _ => format!("unexpected operand at {}", self.start),
        }
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.token, Token::Word(other) if other.eq_ignore_ascii_case(word))
    }

    fn take_word(&mut self, word: &str) -> Result<bool, String> {
        let is_next = self.is_word(word);
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    fn expect_word(&mut self, word: &str) -> Result<(), String> {
        if self.take_word(word)? { Ok(()) } else { Err(self.unexpected()) }
    }

    fn take_symbol(&mut self, symbol: &str) -> Result<bool, String> {
        let is_next = matches!(self.token, Token::Symbol(other) if other == symbol);
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    fn expect_symbol(&mut self, symbol: &str) -> Result<(), String> {
        if self.take_symbol(symbol)? { Ok(()) } else { Err(self.unexpected()) }
    }

    /// An expression of operators that bind at least as tightly as `least`.
    fn expression(&mut self, least: Power) -> Result<Expression, String> {
        self.depth_left = self.depth_left.checked_sub(1).ok_or("the condition is nested too deep")?;
        let mut left = self.prefix()?;
        while let Some(power) = self.infix_power().filter(|power| *power >= least) {
            left = self.infix(left, power)?;
        }
        self.depth_left += 1;
        Ok(left)
    }

    fn prefix(&mut self) -> Result<Expression, String> {
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or("the condition has too many nodes")?;
        let start = self.start;
        match self.advance()? {
            Token::Word(word) => self.word(word),
            Token::Path(parts) => self.path(parts),
            Token::Number(text, kind) => Ok(Expression::Literal(Literal::Number(text.to_owned(), kind))),
            Token::Text { text, other } => Ok(Expression::Literal(Literal::Text { text, other })),
            Token::Symbol("(") => {
                let inner = self.expression(Power::Or)?;
                self.expect_symbol(")")?;
                Ok(inner)
            }
            Token::Symbol("-") => Ok(negative(self.expression(Power::Sign)?)),
            Token::Symbol("+") => Ok(positive(self.expression(Power::Sign)?)),
            token => {
                self.token = token;
                self.start = start;
                Err(self.unexpected())
            }
        }
    }

    fn word(&mut self, word: &str) -> Result<Expression, String> {
        match word.to_ascii_lowercase().as_str() {
            "not" => Ok(Expression::Not(Box::new(self.expression(Power::Not)?))),
            "null" => Ok(Expression::Literal(Literal::Null)),
            "true" => Ok(Expression::Literal(Literal::Boolean(true))),
            "false" => Ok(Expression::Literal(Literal::Boolean(false))),
            "cast" if self.token == Token::Symbol("(") => self.cast(),
            "case" | "interval" | "and" | "or" | "in" | "is" | "between" | "like" | "select" | "exists" => {
                Err(format!("unexpected {}", shown(word)))
            }
            lower => self.typed_literal_or_name(lower, word),
        }
    }

    fn typed_literal_or_name(&mut self, lower: &str, word: &str) -> Result<Expression, String> {
        let Token::Text { text, other } = &self.token else { return self.path(vec![word.to_owned()]) };
        let literal = match (lower, other) {
            ("date", None) => Literal::Date(text.clone()),
            ("timestamp" | "timestamp_ltz", None) => Literal::Timestamp(text.clone()),
            ("timestamp_ntz", None) => Literal::TimestampNtz(text.clone()),
            ("x", None) => {
                self.advance()?;
                return Ok(Expression::undecidable("a binary constant"));
            }
            _ => return Err(self.unexpected()),
        };
        self.advance()?;
        Ok(Expression::Literal(literal))
    }

    /// A column, or a function if a parenthesis follows.
    fn path(&mut self, parts: Vec<String>) -> Result<Expression, String> {
        if !self.take_symbol("(")? {
            return Ok(Expression::Column(ColumnName::Path(parts)));
        }
        let mut arguments = Vec::new();
        if !self.take_symbol(")")? {
            arguments = self.list()?;
        }
        let name = parts.join(".").to_ascii_lowercase();
        Ok(match (name.as_str(), <[Expression; 2]>::try_from(arguments)) {
            ("startswith", Ok([child, Expression::Literal(Literal::Text { text, other: None })])) => {
                let pattern = Pattern { prefix: text, rest: PatternRest::Anything };
                Expression::Like(Box::new(operand(child)), pattern)
            }
            ("isnull" | "isnotnull", Err(arguments)) if arguments.len() == 1 => {
                let child = arguments.into_iter().next().map_or(Expression::Literal(Literal::Null), operand);
                let is_null = Expression::IsNull(Box::new(child));
                if name == "isnull" { is_null } else { Expression::Not(Box::new(is_null)) }
            }
            _ => Expression::undecidable(format!("function {}", shown(&name))),
        })
    }

    /// Expressions between commas, up to the closing parenthesis.
    fn list(&mut self) -> Result<Vec<Expression>, String> {
        let mut items = vec![self.expression(Power::Or)?];
        while self.take_symbol(",")? {
            items.push(self.expression(Power::Or)?);
        }
        self.expect_symbol(")")?;
        Ok(items)
    }

    fn cast(&mut self) -> Result<Expression, String> {
        self.expect_symbol("(")?;
        let inner = operand(self.expression(Power::Or)?);
        self.expect_word("as")?;
        let to = self.type_name()?;
        self.expect_symbol(")")?;
        Ok(match (inner, to) {
            (Expression::Undecidable(reason), _) => Expression::Undecidable(reason),
            (inner, Some(to)) => Expression::Cast(Box::new(inner), to),
            (_, None) => Expression::undecidable("a cast to a type that cannot be compared"),
        })
    }

    fn type_name(&mut self) -> Result<Option<PrimitiveType>, String> {
        let Token::Word(word) = self.advance()? else { return Err("a cast names no type".into()) };
        let mut name = match word.to_ascii_lowercase().as_str() {
            "int" => "integer".to_owned(),
            "bigint" => "long".to_owned(),
            "smallint" => "short".to_owned(),
            "tinyint" => "byte".to_owned(),
            "real" => "float".to_owned(),
            "timestamp_ltz" => "timestamp".to_owned(),
            "dec" | "numeric" => "decimal".to_owned(),
            other => other.to_owned(),
        };
        if self.take_symbol("(")? {
            let digits = self.list()?.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            name = format!("{name}({digits})");
        }
        Ok(PrimitiveType::parse(&name))
    }

    fn infix_power(&self) -> Option<Power> {
        match &self.token {
            Token::Symbol("(" | ")" | ",") => None,
            Token::Symbol("+" | "-" | "||") => Some(Power::Sum),
            Token::Symbol("*" | "/" | "%") => Some(Power::Product),
            Token::Symbol(_) => Some(Power::Comparison),
            Token::Word(word) => match word.to_ascii_lowercase().as_str() {
                "or" => Some(Power::Or),
                "and" => Some(Power::And),
                "is" | "in" | "like" | "between" | "not" | "rlike" | "ilike" | "regexp" => {
                    Some(Power::Comparison)
                }
                "div" => Some(Power::Product),
                _ => None,
            },
            _ => None,
        }
    }

    fn infix(&mut self, left: Expression, power: Power) -> Result<Expression, String> {
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or("the condition has too many nodes")?;
        let token = self.advance()?;
        match (power, token) {
            (Power::Or, _) => {
                let right = self.expression(Power::And)?;
                Ok(Expression::Or(appended(left, right, false)))
            }
            (Power::And, _) => {
                let right = self.expression(Power::Not)?;
                Ok(Expression::And(appended(left, right, true)))
            }
            (Power::Comparison, Token::Symbol(symbol)) => {
                let comparison = comparison(symbol).ok_or_else(|| self.unexpected())?;
                let right = operand(self.expression(Power::Sum)?);
                Ok(Expression::Compare(comparison, Box::new(operand(left)), Box::new(right)))
            }
            (Power::Comparison, Token::Word(word)) => self.keyword(operand(left), word),
            (Power::Sum, _) => {
                self.expression(Power::Product)?;
                Ok(Expression::undecidable("arithmetic"))
            }
            _ => {
                self.expression(Power::Sign)?;
                Ok(Expression::undecidable("arithmetic"))
            }
        }
    }

    fn keyword(&mut self, left: Expression, word: &str) -> Result<Expression, String> {
        match word.to_ascii_lowercase().as_str() {
            "is" => self.is(left),
            "not" => match self.advance()? {
                Token::Word(word)
                    if !word.eq_ignore_ascii_case("not") && !word.eq_ignore_ascii_case("is") =>
                {
                    Ok(Expression::Not(Box::new(self.keyword(left, word)?)))
                }
                _ => Err("NOT stands before none of IN, LIKE and BETWEEN".into()),
            },
            "in" => {
                self.expect_symbol("(")?;
                let list = self.list()?.into_iter().map(operand).collect();
                Ok(Expression::In(Box::new(left), list))
            }
            "between" => {
                let low = operand(self.expression(Power::Sum)?);
                self.expect_word("and")?;
                let high = operand(self.expression(Power::Sum)?);
                Ok(Expression::And(vec![
                    Expression::Compare(Comparison::GreaterOrEqual, Box::new(left.clone()), Box::new(low)),
                    Expression::Compare(Comparison::LessOrEqual, Box::new(left), Box::new(high)),
                ]))
            }
            "like" => self.like(left),
            "rlike" | "ilike" | "regexp" => {
                self.expression(Power::Sum)?;
                Ok(Expression::undecidable("a pattern that is no LIKE"))
            }
            _ => Err(format!("unexpected {}", shown(word))),
        }
    }

    fn is(&mut self, left: Expression) -> Result<Expression, String> {
        let negated = self.take_word("not")?;
        let condition = if self.take_word("null")? {
            Expression::IsNull(Box::new(left))
        } else if self.take_word("distinct")? {
            self.expect_word("from")?;
            let right = operand(self.expression(Power::Sum)?);
            let same = Expression::Compare(Comparison::NullSafeEqual, Box::new(left), Box::new(right));
            Expression::Not(Box::new(same))
        } else if self.take_word("true")? || self.take_word("false")? || self.take_word("unknown")? {
            return Ok(Expression::undecidable("a test of a condition"));
        } else {
            return Err(self.unexpected());
        };
        Ok(if negated { Expression::Not(Box::new(condition)) } else { condition })
    }

    fn like(&mut self, left: Expression) -> Result<Expression, String> {
        let right = self.expression(Power::Sum)?;
        if self.take_word("escape")? {
            self.advance()?;
            return Ok(Expression::undecidable("a LIKE with an ESCAPE"));
        }
        match right {
            Expression::Literal(Literal::Text { text, other: None }) => Ok(match pattern(&text) {
                Some(pattern) => Expression::Like(Box::new(left), pattern),
                None => Expression::undecidable("a LIKE pattern with a backslash before no wildcard"),
            }),
            _ => Ok(Expression::undecidable("a LIKE without a constant pattern")),
        }
    }
}

/// `expression` where an operand belongs. Conditions there are cut off, which also keeps chains of
/// comparisons from growing deep trees.
fn operand(expression: Expression) -> Expression {
    match expression {
        Expression::Column(_)
        | Expression::Literal(_)
        | Expression::Cast(..)
        | Expression::Undecidable(_) => expression,
        _ => Expression::undecidable("a condition within a comparison"),
    }
}

fn appended(left: Expression, right: Expression, all: bool) -> Vec<Expression> {
    let mut children = match left {
        Expression::And(children) if all => children,
        Expression::Or(children) if !all => children,
        other => vec![other],
    };
    children.push(right);
    children
}

fn comparison(symbol: &str) -> Option<Comparison> {
    Some(match symbol {
        "=" | "==" => Comparison::Equal,
        "<>" | "!=" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        "<=>" => Comparison::NullSafeEqual,
        _ => return None,
    })
}

/// `+` makes a number of a text.
fn positive(expression: Expression) -> Expression {
    match expression {
        number @ Expression::Literal(Literal::Number(..)) => number,
        _ => Expression::undecidable("arithmetic"),
    }
}

fn negative(expression: Expression) -> Expression {
    match expression {
        Expression::Literal(Literal::Number(text, kind)) => {
            let text = text.strip_prefix('-').map_or_else(|| format!("-{text}"), str::to_owned);
            Expression::Literal(Literal::Number(text, kind))
        }
        _ => Expression::undecidable("arithmetic"),
    }
}

fn pattern(text: &str) -> Option<Pattern> {
    let mut prefix = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            // Spark refuses a pattern with another character there.
            '\\' => prefix.push(characters.next().filter(|next| matches!(next, '%' | '_' | '\\'))?),
            '%' if characters.all(|rest| rest == '%') => {
                return Some(Pattern { prefix, rest: PatternRest::Anything });
            }
            '%' | '_' => return Some(Pattern { prefix, rest: PatternRest::Something }),
            other => prefix.push(other),
        }
    }
    Some(Pattern { prefix, rest: PatternRest::Nothing })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown_tree(sql: &str) -> String {
        parse(sql).map_or_else(|reason| format!("! {reason}"), |expression| expression.to_string())
    }

    #[test]
    fn predicates_of_clients_are_parsed() {
        for (sql, tree) in [
            ("col = 123", "`col` = 123"),
            ("'foo' < col", "'foo' < `col`"),
            ("col!='foo'", "`col` <> 'foo'"),
            ("date >= '2021-01-01'", "`date` >= '2021-01-01'"),
            ("date >= DATE '2021-01-01'", "`date` >= DATE '2021-01-01'"),
            ("ts < timestamp'2021-01-01 00:00:00'", "`ts` < TIMESTAMP '2021-01-01 00:00:00'"),
            ("a IS NOT NULL and b is null", "(NOT (`a` IS NULL) AND `b` IS NULL)"),
            ("(a = 1 OR b = 2) AND c = 3", "((`a` = 1 OR `b` = 2) AND `c` = 3)"),
            ("a = 1 OR b = 2 AND c = 3", "(`a` = 1 OR (`b` = 2 AND `c` = 3))"),
            ("NOT a = 1 AND b = 2", "(NOT (`a` = 1) AND `b` = 2)"),
            ("a in (1, 2,3)", "`a` IN (1, 2, 3)"),
            ("a NOT IN ('x')", "NOT (`a` IN ('x'))"),
            ("a BETWEEN 1 AND 2 AND b", "(`a` >= 1 AND `a` <= 2 AND `b`)"),
            ("a NOT BETWEEN -1 AND +2", "NOT ((`a` >= -1 AND `a` <= 2))"),
            ("a LIKE 'x\\\\_y%'", "`a` LIKE 'x\\\\_y%'"),
            ("a LIKE 'x%y'", "`a` LIKE 'x%_'"),
            ("a <=> NULL", "`a` <=> NULL"),
            ("a IS DISTINCT FROM 5", "NOT (`a` <=> 5)"),
            ("`my col`.`x``y` == 5L", "`my col`.`x``y` = 5"),
            ("s.t.u > 1.5BD", "`s`.`t`.`u` > 1.5"),
            ("CAST('5' AS BIGINT) = a", "CAST('5' AS long) = `a`"),
            ("CAST(a AS DECIMAL(10, 2)) = 1e2", "CAST(`a` AS decimal(10,2)) = 1e2D"),
            ("a = 3.5F", "`a` = 3.5F"),
            ("isnotnull(a)", "NOT (`a` IS NULL)"),
            ("startswith(a, 'x%')", "`a` LIKE 'x\\\\%%'"),
            ("upper(a) = 'X' AND b = 1", "(<function 'upper'> = 'X' AND `b` = 1)"),
            ("a + 1 > 5 * -b", "<arithmetic> > <arithmetic>"),
            ("a = +'05' OR +a = '5' OR a = +5", "(`a` = <arithmetic> OR <arithmetic> = '5' OR `a` = 5)"),
            ("a = '--' AND b = '/*'", "(`a` = '--' AND `b` = '/*')"),
            ("a = - -5", "`a` = 5"),
            ("a = 'it\\'s' ", "`a` = 'it\\'s'"),
            ("a = 'x' 'y'", "`a` = 'xy'"),
            ("a = \"x\"", "`a` = 'x'"),
            ("a = r'\\n'", "`a` = '\\\\n'"),
            ("((((a))))", "`a`"),
            ("größe > 1", "`größe` > 1"),
            ("a = 1 = true", "<a condition within a comparison> = true"),
        ] {
            let expression = parse(sql).unwrap_or_else(|reason| panic!("{sql}: {reason}"));
            assert_eq!(expression.to_string(), tree, "{sql}");
            if !tree.contains('<') || tree.contains("<=>") {
                assert_eq!(shown_tree(tree), tree, "{sql}");
            }
        }
    }

    #[test]
    fn strings_unescape_as_in_spark() {
        let text = |sql: &str| match parse(sql) {
            Ok(Expression::Literal(Literal::Text { text, other })) => (text, other),
            other => panic!("{sql}: {other:?}"),
        };
        assert_eq!(text(r"'a\n\t\0\\\'\x'").0, "a\n\t\0\\'x");
        assert_eq!(text(r"'\u00e9\101\U0001F600'").0, "éA😀");
        assert_eq!(text(r"'50\%\_'").0, r"50\%\_");
        assert_eq!(text("'it''s'"), ("its".into(), Some("it's".into())));
    }

    #[test]
    fn an_invalid_condition_has_a_reason() {
        for (sql, reason) in [
            ("", "the condition ends too early"),
            ("a =", "the condition ends too early"),
            ("a = 1 b", "unexpected 'b' at 6"),
            ("a = 'x", "the string at 4 has no end"),
            ("`a", "a quoted name has no end"),
            ("a ; b", "unexpected character at 2"),
            ("a IN ()", "unexpected ')' at 6"),
            ("a = 5x", "not a number at 4"),
            ("CASE WHEN a THEN b END", "unexpected 'CASE'"),
            ("(a = 1", "the condition ends too early"),
            ("a NOT IN (1, --2,\n3)", "a comment at 13"),
            ("a = 1 /* OR b */", "a comment at 6"),
        ] {
            assert_eq!(shown_tree(sql), format!("! {reason}"), "{sql}");
        }
    }

    #[test]
    fn size_and_depth_are_capped() {
        let deep = format!("{}a{}", "(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(shown_tree(&deep), "! the condition is nested too deep");
        assert_eq!(shown_tree(&"NOT ".repeat(100_000)), "! the condition is nested too deep");
        assert_eq!(shown_tree(&"- ".repeat(100_000)), "! the condition is nested too deep");
        let wide = vec!["a = 1"; MAX_NODES].join(" OR ");
        assert_eq!(shown_tree(&wide), "! the condition has too many nodes");
        let chain = format!("a{}", " IS NULL".repeat(10_000));
        assert_eq!(shown_tree(&chain), "<a condition within a comparison> IS NULL");
        let path = |parts: usize| format!("{} = 1", vec!["a"; parts].join("."));
        assert!(!shown_tree(&path(MAX_DEPTH)).starts_with('!'));
        assert_eq!(shown_tree(&path(MAX_DEPTH + 1)), "! a name has too many parts");
        assert_eq!(shown_tree(&path(500_000)), "! a name has too many parts");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(sql in "(a|b|`|'|\"|\\\\|[0-9]|\\.|e|NOT|IN|IS|NULL|LIKE|BETWEEN|AND|OR|CAST|AS|DATE|[ (),=<>!%_+*-]|\\PC){0,40}") {
            if let Ok(expression) = parse(&sql) {
                let _ = expression.to_string();
            }
        }
    }
}
