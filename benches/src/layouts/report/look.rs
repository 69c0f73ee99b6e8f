//! What tells layouts apart: a colour of Okabe and Ito's set for all kinds of colour vision, and marker and dashes for those
//! who see or print none.

use maud::{Markup, html};

use crate::layouts::fit::contest::Kind;

/// A layout, or `auto`, in plots and tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Layout(Kind),
    Auto,
}

impl Look {
    pub(super) const ALL: [Self; 5] = [
        Self::Layout(Kind::Symmetric),
        Self::Layout(Kind::Asymmetric),
        Self::Layout(Kind::Gathered),
        Self::Layout(Kind::Packed),
        Self::Auto,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Layout(kind) => kind.name(),
            Self::Auto => "auto",
        }
    }

    /// The class in the page's style sheet.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Layout(kind) => class(kind),
            Self::Auto => "auto",
        }
    }

    /// Around (x, y), as a path.
    pub(super) fn marker(self, x: f64, y: f64) -> String {
        match self {
            Self::Layout(Kind::Symmetric) => {
                format!("M{:.1} {y:.1}a4.2 4.2 0 1 0 8.4 0a4.2 4.2 0 1 0 -8.4 0z", x - 4.2)
            }
            Self::Layout(Kind::Asymmetric) => format!("M{:.1} {:.1}h5v5h-5z", x - 2.5, y - 2.5),
            Self::Layout(Kind::Gathered) => format!("M{x:.1} {:.1}l3.6 6.4h-7.2z", y - 4.2),
            Self::Layout(Kind::Packed) => format!("M{x:.1} {:.1}l4.2 4.2l-4.2 4.2l-4.2 -4.2z", y - 4.2),
            Self::Auto => format!("M{:.1} {:.1}l5.6 5.6m0 -5.6l-5.6 5.6", x - 2.8, y - 2.8),
        }
    }
}

pub(super) fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Symmetric => "sym",
        Kind::Asymmetric => "asym",
        Kind::Gathered => "gath",
        Kind::Packed => "pack",
    }
}

/// The letter of a layout in the cells of the map: the first of its name.
pub(super) fn letter(kind: Kind) -> char {
    char::from(kind.name().as_bytes()[0]).to_ascii_uppercase()
}

/// A line with its marker, and the name.
pub(super) fn key(look: Look) -> Markup {
    html! {
        svg class={ "key " (look.class()) } width="36" height="14" aria-hidden="true" {
            path class="line" d="M1 7H35" {}
            path class="mark" d=(look.marker(18.0, 7.0)) {}
        }
        (look.name())
    }
}

/// The legend, with all entries in one row.
pub(super) fn legend(looks: &[Look]) -> Markup {
    html! { div class="legend" { @for look in looks { span { (key(*look)) } } } }
}

/// Colours without lines.
pub(super) fn swatches() -> Markup {
    html! {
        div class="legend" {
            @for kind in Kind::ALL {
                span { i class={ "swatch " (class(kind)) } {} (letter(kind)) " " (kind.name()) }
            }
        }
    }
}
