//! Enums whose variants have names.

/// Defines an enum in which the name of each variant follows the variant. The enum has the constant `ALL` with all
/// variants in the order of their definition, and the method `name`. The macro takes the documentation of both behind the
/// enum.
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
