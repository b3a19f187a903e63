//! What lies over the screen: pages to read, and lists to choose from.

use lockmeter_render::{Weight, wrap};
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::super::canvas::{Canvas, line_of};
use super::super::keys::HELP;
use super::super::overlays::{Menu, MenuOf, Overlay};
use super::super::state::State;

const WIDEST_PAGE: u16 = 110;

pub fn draw(canvas: &mut Canvas<'_>, state: &State, overlay: &mut Overlay) {
    match overlay {
        Overlay::Help { scroll } => page(canvas, "keys", &help(canvas), scroll),
        Overlay::FinePrint { scroll } => {
            let lines = fine_print(canvas, state);
            page(canvas, "fine print", &lines, scroll);
        }
        Overlay::Menu(list) => menu(canvas, list),
        Overlay::Prompt(_) => {}
    }
}

fn page_area(screen: Rect, width: u16, lines: usize) -> Rect {
    let width = width.min(screen.width);
    let height = u16::try_from(lines + 1).unwrap_or(u16::MAX).min(screen.height.saturating_sub(2));
    let y = screen.y + 1 + (screen.height.saturating_sub(2) - height) / 2;
    Rect { x: screen.x + (screen.width - width) / 2, y, width, height }
}

fn title(canvas: &mut Canvas<'_>, area: Rect, text: &str) {
    let palette = canvas.palette;
    canvas.clear(area);
    let rest = canvas.text(line_of(area, 0), &format!("══ {text} "), palette.heading);
    canvas.text(rest, &"═".repeat(rest.width.into()), palette.dim);
}

fn page(canvas: &mut Canvas<'_>, name: &str, lines: &[(String, Style)], scroll: &mut usize) {
    let area = page_area(canvas.area(), WIDEST_PAGE, lines.len());
    title(canvas, area, name);
    let height = usize::from(area.height.saturating_sub(1));
    *scroll = (*scroll).min(lines.len().saturating_sub(height));
    for (at, (line, style)) in lines.iter().skip(*scroll).take(height).enumerate() {
        canvas.text(line_of(area, at as u16 + 1), line, *style);
    }
}

fn help(canvas: &Canvas<'_>) -> Vec<(String, Style)> {
    let plain = canvas.palette.plain;
    HELP.iter().map(|(keys, what)| (format!(" {keys:<15} {what}"), plain)).collect()
}

fn fine_print(canvas: &Canvas<'_>, state: &State) -> Vec<(String, Style)> {
    let palette = canvas.palette;
    let width = canvas.area().width.min(WIDEST_PAGE).into();
    let lines = state.fine_print().into_iter().flat_map(|(line, weight)| {
        let style = match weight {
            Weight::Plain => palette.plain,
            Weight::Bold => palette.heading,
            Weight::Dim => palette.dim,
            Weight::Warning => palette.warning,
        };
        wrap(&line, width, 4).into_iter().map(move |line| (line, style))
    });
    lines.collect()
}

fn menu(canvas: &mut Canvas<'_>, menu: &Menu) {
    let palette = canvas.palette;
    let widest = menu.items.iter().map(|item| item.chars().count()).max().unwrap_or(0);
    let name = match menu.of {
        MenuOf::Sort => "sort by",
        MenuOf::Group => "group by (up to three)",
    };
    let width = u16::try_from(widest + 8).unwrap_or(u16::MAX).max(30);
    let area = page_area(canvas.area(), width, menu.items.len());
    title(canvas, area, name);
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let first = (menu.at + 1).saturating_sub(height);
    for (line, (at, item)) in menu.items.iter().enumerate().skip(first).take(height).enumerate() {
        let mark = match menu.taken.iter().position(|taken| *taken == at) {
            Some(order) if menu.of == MenuOf::Group => format!("{}", order + 1),
            Some(_) => "•".to_owned(),
            None => " ".to_owned(),
        };
        let line = line_of(area, line as u16 + 1);
        canvas.text(line, &format!(" {mark}  {item}"), palette.plain);
        if at == menu.at {
            canvas.style(line, palette.selected);
        }
    }
}
