//! Which pointers that programs hold lead to something, and to what.
//!
//! Programs pass null pointers, pointers they freed and pointers of another kind. All are looked up here before
//! anything is read through them. An object is used by one thread at a time.

use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError, TryLockError},
};

/// What a pointer that a program holds stands for.
pub(crate) trait Object: Send + 'static {
    /// The kind of the object, with an article: "a host's context".
    const KIND: &'static str;
}

/// A pointer that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Misuse {
    #[error("the pointer is NULL; {0} is needed")]
    Null(&'static str),
    #[error("the pointer leads to nothing of this library, or no more; {0} is needed")]
    Unknown(&'static str),
    #[error("the pointer leads to {is}; {needed} is needed")]
    Kind { is: &'static str, needed: &'static str },
    #[error(
        "{0} is in use by a call on another thread, or by the one that called here; wait for it to return"
    )]
    Busy(&'static str),
}

#[derive(Clone)]
struct Entry {
    kind: &'static str,
    /// An `ObjectEntry<T>`.
    object: Arc<dyn Any + Send + Sync>,
}

/// `None` once removed, for threads that looked it up before.
type ObjectEntry<T> = Mutex<Option<T>>;

static ALIVE: LazyLock<Mutex<HashMap<usize, Entry>>> = LazyLock::new(Mutex::default);

/// Registers `object` under `pointer`.
pub(crate) fn insert<T: Object>(pointer: *const impl Sized, object: T) {
    let object: Arc<ObjectEntry<T>> = Arc::new(Mutex::new(Some(object)));
    let entry = Entry { kind: T::KIND, object };
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner).insert(pointer.addr(), entry);
}

/// Uses what `pointer` stands for.
pub(crate) fn with<T, R, E>(
    pointer: *const impl Sized,
    f: impl FnOnce(&mut T) -> Result<R, E>,
) -> Result<R, E>
where
    T: Object,
    E: From<Misuse>,
{
    let object = look_up::<T>(pointer.addr())?;
    exclusively(&object, |object| object.as_mut().map(f))?
        .unwrap_or_else(|| Err(Misuse::Unknown(T::KIND).into()))
}

/// What `pointer` stood for; now it stands for nothing.
pub(crate) fn remove<T: Object>(pointer: *const impl Sized) -> Result<T, Misuse> {
    let object = look_up::<T>(pointer.addr())?;
    exclusively(&object, |object| {
        ALIVE.lock().unwrap_or_else(PoisonError::into_inner).remove(&pointer.addr());
        object.take()
    })?
    .ok_or(Misuse::Unknown(T::KIND))
}

fn look_up<T: Object>(address: usize) -> Result<Arc<ObjectEntry<T>>, Misuse> {
    if address == 0 {
        return Err(Misuse::Null(T::KIND));
    }
    let entry = ALIVE.lock().unwrap_or_else(PoisonError::into_inner).get(&address).cloned();
    let Entry { kind, object } = entry.ok_or(Misuse::Unknown(T::KIND))?;
    object.downcast().map_err(|_| Misuse::Kind { is: kind, needed: T::KIND })
}

/// A panic before left the object as it was then; it is still of one piece.
fn exclusively<T: Object, R>(
    object: &ObjectEntry<T>,
    f: impl FnOnce(&mut Option<T>) -> R,
) -> Result<R, Misuse> {
    match object.try_lock() {
        Ok(mut object) => Ok(f(&mut object)),
        Err(TryLockError::Poisoned(poisoned)) => Ok(f(&mut poisoned.into_inner())),
        Err(TryLockError::WouldBlock) => Err(Misuse::Busy(T::KIND)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Apple(u32);
    struct Pear;

    impl Object for Apple {
        const KIND: &'static str = "an apple";
    }

    impl Object for Pear {
        const KIND: &'static str = "a pear";
    }

    fn eat(pointer: *const u8) -> Result<u32, Misuse> {
        with(pointer, |apple: &mut Apple| Ok(apple.0))
    }

    #[test]
    fn only_what_lives_is_found() {
        let memory = [0u8; 2];
        let (apple, pear) = (&raw const memory[0], &raw const memory[1]);
        insert(apple, Apple(3));
        insert(pear, Pear);
        assert_eq!(eat(apple), Ok(3));
        assert_eq!(eat(std::ptr::null()), Err(Misuse::Null("an apple")));
        assert_eq!(eat(pear), Err(Misuse::Kind { is: "a pear", needed: "an apple" }));
        let within = with(apple, |_: &mut Apple| eat(apple).or(remove::<Apple>(apple).map(|_| 0)));
        assert_eq!(within, Err(Misuse::Busy("an apple")));
        assert_eq!(remove::<Apple>(apple).unwrap().0, 3);
        assert_eq!(eat(apple), Err(Misuse::Unknown("an apple")));
        assert!(remove::<Pear>(pear).is_ok());
    }
}
