//! Where what stands on the screen, from 80×24 to as large as terminals are.

use lockmeter_profile::Dimension;
use ratatui_core::layout::Rect;

/// The parts of the screen that hold rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pane {
    Locks,
    Callers,
    Blockers,
    Roots,
    Histogram,
    Waiting,
}

impl Pane {
    pub const ALL: [Self; 6] =
        [Self::Locks, Self::Callers, Self::Blockers, Self::Roots, Self::Histogram, Self::Waiting];

    /// What is shown about the selected row.
    pub const DETAILS: [Self; 5] = [Self::Callers, Self::Blockers, Self::Roots, Self::Histogram, Self::Waiting];

    pub const fn index(self) -> usize {
        self as usize
    }

    /// What its rows tell apart beside the lock, if it has stacks.
    pub const fn groups_by(self) -> Option<Dimension> {
        match self {
            Self::Callers => Some(Dimension::Caller),
            Self::Blockers => Some(Dimension::Blocker),
            Self::Roots => Some(Dimension::Root),
            Self::Locks | Self::Histogram | Self::Waiting => None,
        }
    }

    pub const fn title(self) -> &'static str {
        match self {
            Self::Locks => "locks",
            Self::Callers => "callers",
            Self::Blockers => "blockers",
            Self::Roots => "roots",
            Self::Histogram => "how long",
            Self::Waiting => "waiting now",
        }
    }
}

/// Screens at least this wide have the details beside the locks.
const WIDE: u16 = 140;

/// A pane that has fewer lines, its title among them, shows too little.
const LEAST_PANE: u16 = 6;

/// The sentences at the top have at most this part of the screen's height; the fine print has all of them.
const MOST_HEAD: u16 = 6;

/// How many lines the parts above the panes need.
#[derive(Debug, Clone, Copy, Default)]
pub struct Needs {
    pub head: u16,
    pub bar: u16,
    pub lost: u16,
    pub message: u16,
}

/// The areas of a screen. Those for which there is no room have no height.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    pub title: Rect,
    pub head: Rect,
    pub bar: Rect,
    pub lost: Rect,
    pub locks: Rect,
    /// The detail panes for which there is room, from top to bottom.
    pub details: Vec<(Pane, Rect)>,
    /// Whether other panes are behind those that are shown.
    pub has_tabs: bool,
    pub message: Rect,
    pub keys: Rect,
}

impl Layout {
    /// Divides the screen; `detail` is the detail pane that must be seen.
    pub fn of(screen: Rect, needs: Needs, detail: Pane) -> Self {
        let mut rest = screen;
        let mut layout = Self { title: take_top(&mut rest, 1), keys: take_bottom(&mut rest, 1), ..Self::default() };
        layout.message = take_bottom(&mut rest, needs.message);
        layout.head = take_top(&mut rest, needs.head.min((screen.height / MOST_HEAD).max(1)));
        layout.bar = take_top(&mut rest, needs.bar);
        layout.lost = take_top(&mut rest, needs.lost);
        let details = if screen.width >= WIDE {
            let left = rest.width * 3 / 5;
            layout.locks = Rect { width: left, ..rest };
            Rect { x: rest.x + left + 2, width: rest.width - left - 2, ..rest }
        } else {
            let below = if rest.height >= 2 * LEAST_PANE { rest.height / 2 } else { 0 };
            let details = take_bottom(&mut rest, below);
            layout.locks = rest;
            details
        };
        layout.divide(details, detail);
        layout
    }

    /// Panes one below the other; as many as there is room for, the one that must be seen among them.
    fn divide(&mut self, area: Rect, detail: Pane) {
        let all = Pane::DETAILS;
        let count = usize::from(area.height / LEAST_PANE).clamp(usize::from(area.height >= 2), all.len());
        self.has_tabs = count < all.len();
        let at = all.iter().position(|pane| *pane == detail).unwrap_or(0);
        let first = (at + 1).saturating_sub(count).min(all.len() - count);
        let mut rest = area;
        for (at, pane) in all[first..first + count].iter().enumerate() {
            let height = rest.height / (count - at) as u16;
            self.details.push((*pane, take_top(&mut rest, height)));
        }
    }

    /// The pane at a place of the screen.
    pub fn pane_at(&self, column: u16, row: u16) -> Option<Pane> {
        let place = (column, row).into();
        let details = self.details.iter().map(|(pane, area)| (*pane, area));
        let mut panes = details.chain([(Pane::Locks, &self.locks)]);
        panes.find(|(_, area)| area.contains(place)).map(|(pane, _)| pane)
    }
}

fn take_top(rest: &mut Rect, height: u16) -> Rect {
    let height = height.min(rest.height);
    let taken = Rect { height, ..*rest };
    *rest = Rect { y: rest.y + height, height: rest.height - height, ..*rest };
    taken
}

fn take_bottom(rest: &mut Rect, height: u16) -> Rect {
    let height = height.min(rest.height);
    rest.height -= height;
    Rect { y: rest.y + rest.height, height, ..*rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs { head: 5, bar: 2, lost: 1, message: 1 };

    fn of(width: u16, height: u16, detail: Pane) -> Layout {
        Layout::of(Rect::new(0, 0, width, height), NEEDS, detail)
    }

    #[test]
    fn the_smallest_screen_has_the_keys_the_locks_and_one_detail() {
        for detail in Pane::DETAILS {
            let layout = of(80, 24, detail);
            assert_eq!((layout.keys.y, layout.keys.height), (23, 1));
            assert!(layout.locks.height >= 6, "{layout:?}");
            assert_eq!(layout.details.iter().map(|(pane, _)| *pane).collect::<Vec<_>>(), [detail]);
            assert!(layout.has_tabs && layout.details[0].1.y >= layout.locks.bottom());
        }
    }

    #[test]
    fn a_large_screen_has_all_details_beside_the_locks() {
        let layout = of(240, 70, Pane::Callers);
        assert_eq!(layout.details.iter().map(|(pane, _)| *pane).collect::<Vec<_>>(), Pane::DETAILS);
        assert!(!layout.has_tabs && layout.details.iter().all(|(_, area)| area.x > layout.locks.right()));
        assert_eq!(layout.pane_at(239, 69 - 2), Some(Pane::Waiting));
        assert_eq!(layout.pane_at(0, layout.locks.y), Some(Pane::Locks));
    }

    /// Makes sure that no two parts share a cell and none lies outside, whatever the size.
    #[test]
    fn parts_lie_beside_each_other_on_every_screen() {
        for (width, height) in (0..260).step_by(13).flat_map(|width| (0..80).map(move |height| (width, height))) {
            for detail in Pane::ALL {
                let layout = of(width, height, detail);
                let details = layout.details.iter().map(|(_, area)| *area);
                let parts =
                    [layout.title, layout.head, layout.bar, layout.lost, layout.locks, layout.message, layout.keys];
                let parts: Vec<Rect> = parts.into_iter().chain(details).filter(|part| !part.is_empty()).collect();
                for (at, part) in parts.iter().enumerate() {
                    assert!(part.right() <= width && part.bottom() <= height, "{width}×{height}: {part:?}");
                    assert!(parts[..at].iter().all(|other| !other.intersects(*part)), "{width}×{height}: {layout:?}");
                }
            }
        }
    }
}
