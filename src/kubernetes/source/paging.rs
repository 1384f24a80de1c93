//! How many objects a page of a list is asked for.
//!
//! Owns the number. Pure.

/// Objects of the first page. Of most kinds, so many take less than half of what a page may take.
const MOST: usize = 500;

/// The number of objects that the next page of one list is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageLimit(usize);

impl PageLimit {
    /// That of a list's first page.
    pub(super) fn new() -> Self {
        Self(MOST)
    }

    /// The number, which is not 0.
    pub(super) fn get(self) -> usize {
        self.0
    }

    /// Takes note that a page came whole. Grows by an eighth, so that among large objects one page in six or
    /// so is asked for in vain; from one object to 500 within 50 pages.
    pub(super) fn fitted(&mut self) {
        self.0 = (self.0 + (self.0 / 8).max(1)).min(MOST);
    }

    /// Takes note that a page was too large. Returns whether the same page may be asked for again, in a
    /// smaller size; not so if it was of one object.
    pub(super) fn too_large(&mut self) -> bool {
        let smaller = self.0 > 1;
        self.0 = (self.0 / 2).max(1);
        smaller
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_too_large_is_asked_for_in_smaller_ones() {
        let (mut limit, mut asked) = (PageLimit::new(), vec![MOST]);
        while limit.too_large() {
            asked.push(limit.get());
        }
        assert_eq!(asked, [500, 250, 125, 62, 31, 15, 7, 3, 1]);
        assert_eq!(limit.get(), 1, "one object is the least");
    }

    #[test]
    fn pages_grow_again_slowly() {
        let mut limit = PageLimit(1);
        let mut pages = 0;
        while limit.get() < MOST {
            let before = limit.get();
            limit.fitted();
            assert!(limit.get() > before && limit.get() <= before + (before / 8).max(1));
            pages += 1;
        }
        assert!(pages <= 50, "{pages}");
        limit.fitted();
        assert_eq!(limit, PageLimit::new());
    }

    #[test]
    fn whatever_fits_a_list_ends() {
        for fits in [1, 2, 3, 7, 60, 499, 500] {
            let (mut limit, mut left, mut requests) = (PageLimit::new(), 5_000_usize, 0);
            while left > 0 {
                requests += 1;
                if limit.get() <= fits {
                    left = left.saturating_sub(limit.get());
                    limit.fitted();
                } else {
                    assert!(limit.too_large());
                }
            }
            assert!(requests <= 8 + 3 * 5_000 / fits + 3, "{fits} objects fit: {requests} requests");
        }
    }
}
