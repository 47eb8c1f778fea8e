//! The macro that defines views, and their error.

use std::fmt;

/// The bytes end within the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncated {
    /// Bytes that the header needs.
    pub needed: usize,
    /// Bytes that there are.
    pub present: usize,
}

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes where a header of {} was expected", self.present, self.needed)
    }
}

impl std::error::Error for Truncated {}

/// Defines a view: its fixed length, and fields as `name / setter: type at offset`, in network byte order.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident, $len:literal; $($(#[$fdoc:meta])* $get:ident / $set:ident: $t:ty = $at:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<T>(pub(crate) T);

        impl<T: AsRef<[u8]>> $name<T> {
            /// Bytes of the fixed part.
            pub const LEN: usize = $len;

            /// A view of `bytes`; an error if they are shorter than the fixed part.
            pub fn new_checked(bytes: T) -> Result<Self, $crate::wire::Truncated> {
                let present = bytes.as_ref().len();
                if present < $len {
                    return Err($crate::wire::Truncated { needed: $len, present });
                }
                Ok(Self(bytes))
            }

            $($(#[$fdoc])*
            pub fn $get(&self) -> $t {
                const N: usize = size_of::<$t>();
                <$t>::from_be_bytes(std::array::from_fn::<u8, N, _>(|i| self.0.as_ref()[$at + i]))
            })*
        }

        impl<T: AsMut<[u8]>> $name<T> {
            $(
            #[doc = concat!("Sets `", stringify!($get), "`.")]
            pub fn $set(&mut self, value: $t) {
                self.0.as_mut()[$at..$at + size_of::<$t>()].copy_from_slice(&value.to_be_bytes());
            })*
        }
    };
}
