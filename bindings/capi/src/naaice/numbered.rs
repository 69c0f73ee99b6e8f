//! Enums of C.

/// Defines an enum with the numbers that C has for its variants, and a method that returns the text of a variant.
macro_rules! numbered {
    (
        $(#[$attribute:meta])*
        $name:ident, $number:ty, $text:ident() -> $type:ty;
        $($variant:ident = $value:literal: $of:literal,)*
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum $name {
            $($variant = $value,)*
        }

        impl $name {
            /// `None` for a number that is none of them, or one that NAAICE defines and never sets.
            pub(crate) fn from_number(number: $number) -> Option<Self> {
                match number {
                    $($value => Some(Self::$variant),)*
                    _ => None,
                }
            }

            pub(crate) fn $text(self) -> $type {
                match self {
                    $(Self::$variant => $of,)*
                }
            }
        }
    };
}

pub(super) use numbered;
