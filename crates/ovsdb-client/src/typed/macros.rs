//! The macros that write down tables and lists of columns.

/// Declares tables and their columns, in the format of [`crate::generate`].
///
/// Each table is a type, and a module with a constant for each column, a list `COLUMNS` of all, and an `enum` for the
/// strings of each column whose schema lists them. `immutable` columns are set when their row is inserted, and never
/// changed; `ephemeral` ones lose their values when the server stops.
///
/// ```
/// mod zoo {
///     ovsdb_client::tables! {
///         database "Zoo", version "1.0.0";
///
///         table cage::Cage = "Cage" [
///             Size { Small = "small", Large = "large" }
///         ] {
///             ANIMALS: Set<Ref<super::Animal>> = "animals";
///             SIZE: Option<Size> = "size";
///         }
///
///         table animal::Animal = "Animal" [] {
///             NAME: String = "name" immutable;
///             WEIGHT: f64 = "weight" ephemeral;
///         }
///     }
/// }
///
/// assert_eq!(zoo::cage::ANIMALS.name(), "animals");
/// assert_eq!(zoo::animal::COLUMNS.len(), 2);
/// ```
#[macro_export]
macro_rules! tables {
    (
        database $database:literal, version $version:literal;
        $(
            table $module:ident :: $table:ident = $name:literal [
                $( $enumeration:ident { $( $variant:ident = $text:literal ),* $(,)? } )*
            ] {
                $( $column:ident : $kind:ty = $column_name:literal $( $flag:ident )* ; )*
            }
        )*
    ) => {
        /// The database's name.
        pub const DATABASE: &str = $database;
        /// The version of the schema that the columns are of.
        pub const VERSION: &str = $version;
        $(
            #[doc = concat!("The table `", $name, "`.")]
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub struct $table;

            impl $crate::typed::Table for $table {
                const NAME: &'static str = $name;
            }

            #[doc = concat!("The columns of the table `", $name, "`.")]
            pub mod $module {
                #[allow(unused_imports)]
                use $crate::typed::{Map, Ref, Set};
                #[allow(unused_imports)]
                use $crate::ovsdb::Uuid;

                $(
                    #[doc = "Strings that the schema lists."]
                    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
                    pub enum $enumeration {
                        $( #[doc = concat!("`", $text, "`")] $variant, )*
                    }

                    impl $crate::typed::Enumeration for $enumeration {
                        const ALL: &'static [Self] = &[$( Self::$variant ),*];

                        fn name(self) -> &'static str {
                            match self {
                                $( Self::$variant => $text, )*
                            }
                        }
                    }
                )*

                $( $crate::tables!(@column $table $column ($kind) $column_name $($flag)*); )*

                /// All of them.
                pub const COLUMNS: &[$crate::typed::AnyColumn] = &[$( $column.any() ),*];
            }
        )*
    };
    (@column $table:ident $column:ident ($kind:ty) $name:literal) => {
        #[doc = concat!("The column `", $name, "`.")]
        pub const $column: $crate::typed::Column<super::$table, $kind> = $crate::typed::Column::new($name);
    };
    (@column $table:ident $column:ident ($kind:ty) $name:literal ephemeral) => {
        #[doc = concat!("The column `", $name, "`, whose values are lost when the server stops.")]
        pub const $column: $crate::typed::Column<super::$table, $kind> =
            $crate::typed::Column::new($name).ephemeral();
    };
    (@column $table:ident $column:ident ($kind:ty) $name:literal immutable) => {
        #[doc = concat!("The column `", $name, "`, which is never changed once its row is there.")]
        pub const $column: $crate::typed::Column<super::$table, $kind, $crate::typed::Immutable> =
            $crate::typed::Column::new($name);
    };
    (@column $table:ident $column:ident ($kind:ty) $name:literal immutable ephemeral) => {
        #[doc = concat!("The column `", $name, "`, which is never changed once its row is there, and lost when the \
                         server stops.")]
        pub const $column: $crate::typed::Column<super::$table, $kind, $crate::typed::Immutable> =
            $crate::typed::Column::new($name).ephemeral();
    };
}

/// A list of columns of several tables: an array of [`AnyColumn`](crate::typed::AnyColumn).
///
/// ```
/// use ovsdb_client::schemas::vswitch::{bridge, port};
/// use ovsdb_client::{Wanted, columns};
///
/// let wanted = Wanted::from(&columns! { bridge { NAME, PORTS } port { NAME, TAG } });
/// # _ = wanted;
/// ```
#[macro_export]
macro_rules! columns {
    ($( $table:ident { $( $column:ident ),* $(,)? } )*) => {
        [$( $( $table::$column.any(), )* )*]
    };
}
