//! Room for something large, apart from the allocator's.

use memmap2::MmapMut;

/// What is larger gets memory of its own, which goes back to the system with it. The allocator would keep it for a while, and
/// rarely finds a use for so much at once.
pub const LARGE_BYTES: usize = 256 * 1024;

/// Memory of its own, of which so much is filled. What was never filled costs nothing.
#[derive(Debug)]
pub struct Room {
    memory: MmapMut,
    bytes: usize,
}

impl AsRef<[u8]> for Room {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

impl Room {
    /// Returns `None` where the system gives none.
    pub fn new(bytes: usize) -> Option<Room> {
        MmapMut::map_anon(bytes).ok().map(|memory| Room { memory, bytes: 0 })
    }

    /// Adds a piece, or says that there is no room for it.
    #[must_use]
    pub fn add(&mut self, piece: &[u8]) -> bool {
        let Some(room) = self.memory.get_mut(self.bytes..self.bytes + piece.len()) else { return false };
        room.copy_from_slice(piece);
        self.bytes += piece.len();
        true
    }

    /// Returns what is not filled, or so much of it.
    pub fn rest(&mut self, bytes_max: usize) -> &mut [u8] {
        let end = self.memory.len().min(self.bytes + bytes_max);
        &mut self.memory[self.bytes..end]
    }

    /// So much of the rest has been filled, or as much as there is.
    pub fn filled(&mut self, bytes: usize) {
        self.bytes = self.memory.len().min(self.bytes + bytes);
    }

    /// Forgets all but so much.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_into_it_is_in_it_up_to_its_size() {
        let mut room = Room::new(10).unwrap();
        assert!(room.add(b"abc"));
        room.rest(2).copy_from_slice(b"de");
        room.filled(2);
        assert!(!room.add(b"too long"));
        assert_eq!(room.rest(100).len(), 5);
        assert_eq!(room.as_ref(), b"abcde");
        room.filled(100);
        assert_eq!(room.as_ref().len(), 10);
        room.truncate(4);
        assert_eq!(room.as_ref(), b"abcd");
    }
}
