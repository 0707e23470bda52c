//! An anonymous memory mapping as a buffer for large messages.

use memmap2::MmapMut;

/// Larger buffers get their own mapping, which returns to the system when dropped. The allocator would keep the memory and
/// rarely reuse so large a block.
pub const LARGE_BYTES: usize = 256 * 1024;

/// A fixed-size mapping, filled from the front. Pages never written cost nothing.
#[derive(Debug)]
pub struct MappedBuffer {
    memory: MmapMut,
    bytes: usize,
}

impl AsRef<[u8]> for MappedBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

impl MappedBuffer {
    /// Returns `None` if the system refuses the mapping.
    pub fn new(bytes: usize) -> Option<MappedBuffer> {
        MmapMut::map_anon(bytes).ok().map(|memory| MappedBuffer { memory, bytes: 0 })
    }

    /// Appends `piece`; returns false if it does not fit.
    #[must_use]
    pub fn add(&mut self, piece: &[u8]) -> bool {
        let Some(room) = self.memory.get_mut(self.bytes..self.bytes + piece.len()) else { return false };
        room.copy_from_slice(piece);
        self.bytes += piece.len();
        true
    }

    /// Returns up to `bytes_max` bytes of the unfilled part.
    pub fn rest(&mut self, bytes_max: usize) -> &mut [u8] {
        let end = self.memory.len().min(self.bytes + bytes_max);
        &mut self.memory[self.bytes..end]
    }

    /// Marks that many more bytes as filled, at most to the end.
    pub fn filled(&mut self, bytes: usize) {
        self.bytes = self.memory.len().min(self.bytes + bytes);
    }

    /// Shortens the filled part to at most `bytes`.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_into_it_is_in_it_up_to_its_size() {
        let mut room = MappedBuffer::new(10).unwrap();
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
