//! A sequence of numbers from which everything random is drawn, so that the runner can shrink a failure.

pub(crate) struct Choices<'a> {
    numbers: std::slice::Iter<'a, u32>,
}

impl<'a> Choices<'a> {
    pub(crate) fn new(numbers: &'a [u32]) -> Self {
        Self { numbers: numbers.iter() }
    }

    /// One of `0..count`; zero once the numbers are used up.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        self.numbers.next().map_or(0, |number| *number as usize % count)
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == count - 1
    }

    pub(crate) fn of<'b, T>(&mut self, items: &'b [T]) -> &'b T {
        &items[self.below(items.len())]
    }
}
