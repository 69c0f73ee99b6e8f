//! The macro `named`, which defines an enum and gives each variant a text as its name.

/// Defines an enum, its constant `ALL` and its method `name`. The constant `ALL` has all variants in the order of their
/// definition, which is also the order of their discriminants. The method `name` returns the text that is written after
/// the variant and `=`. The caller of the macro writes the documentation of `ALL` and of `name` after the enum.
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
