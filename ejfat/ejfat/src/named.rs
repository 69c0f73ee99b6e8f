//! A macro for enums that return the name of each variant as a text.

/// Defines an enum, its constant `ALL` and its method `name`. The text that `name` returns for a variant stands behind
/// the variant. The constant `ALL` has all variants in the order of their definition. The documentation of `ALL` and
/// of `name` stands behind the enum.
macro_rules! named {
    (
        $(#[$of_enum:meta])*
        pub enum $named:ident { $($(#[$of_variant:meta])* $variant:ident = $text:literal,)* }

        $(#[$of_all:meta])*
        ALL;
        $(#[$of_name:meta])*
        name;
    ) => {
        $(#[$of_enum])*
        pub enum $named { $($(#[$of_variant])* $variant,)* }

        impl $named {
            $(#[$of_all])*
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            $(#[$of_name])*
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}
