//! Takes in a body piece by piece, unpacks it, and stops when it is too much.

use crate::error::EgressError;
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use std::io::{self, Write};

/// More than any text compresses to; markup with much repetition comes near 50.
const RATIO_MAX: usize = 100;
/// Below this a high ratio costs nothing, and short pages of blanks have one.
const RATIO_COUNTS_FROM: usize = 1024 * 1024;
/// A body grows by steps of this, so that it never takes twice its size.
const GROWTH_BYTES: usize = 256 * 1024;

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    /// zlib by the letter, and plain deflate as some servers have it.
    Deflate,
}

impl Packing {
    /// Reads the `Content-Encoding` header. Packed twice is refused: nobody does that for good reasons.
    pub(crate) fn parse(header: Option<&[u8]>) -> Result<Packing, EgressError> {
        let text = String::from_utf8_lossy(header.unwrap_or_default()).trim().to_ascii_lowercase();
        match text.as_str() {
            "" | "identity" => Ok(Packing::Plain),
            "gzip" | "x-gzip" => Ok(Packing::Gzip),
            "deflate" => Ok(Packing::Deflate),
            _ => Err(EgressError::Encoding { encoding: text }),
        }
    }
}

/// Bytes up to a bound.
struct Bounded {
    bytes: Vec<u8>,
    bytes_max: usize,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + piece.len() > self.bytes_max {
            self.full = true;
            return Err(io::Error::other("too much"));
        }
        if self.bytes.capacity() - self.bytes.len() < piece.len() {
            self.bytes.reserve_exact(piece.len().max(GROWTH_BYTES));
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Unpack {
    Plain(Bounded),
    Gzip(Box<MultiGzDecoder<Bounded>>),
    /// Not known before the first byte.
    Deflate(Bounded),
    Zlib(Box<ZlibDecoder<Bounded>>),
    Raw(Box<DeflateDecoder<Bounded>>),
}

/// Takes in one body.
pub(crate) struct Decoder {
    unpack: Option<Unpack>,
    taken: usize,
    bytes_max: usize,
}

impl Decoder {
    pub(crate) fn new(packing: Packing, bytes_max: usize) -> Decoder {
        let sink = Bounded { bytes: Vec::new(), bytes_max, full: false };
        let unpack = match packing {
            Packing::Plain => Unpack::Plain(sink),
            Packing::Gzip => Unpack::Gzip(Box::new(MultiGzDecoder::new(sink))),
            Packing::Deflate => Unpack::Deflate(sink),
        };
        Decoder { unpack: Some(unpack), taken: 0, bytes_max }
    }

    /// Takes one piece. After an error the rest is not wanted.
    pub(crate) fn take(&mut self, piece: &[u8]) -> Result<(), EgressError> {
        self.taken += piece.len();
        // What is still packed is bounded too: an unpacker may take it in and give nothing out.
        if self.taken > self.bytes_max {
            return Err(EgressError::TooLarge { bytes_max: self.bytes_max });
        }
        if let (Some(Unpack::Deflate(_)), Some(first)) = (&self.unpack, piece.first()) {
            // A zlib header has method 8 in its low bits; a plain block of this kind would be stored, which is rare.
            let is_zlib = first & 0x0f == 8;
            self.unpack = self.unpack.take().map(|unpack| match unpack {
                Unpack::Deflate(sink) if is_zlib => Unpack::Zlib(Box::new(ZlibDecoder::new(sink))),
                Unpack::Deflate(sink) => Unpack::Raw(Box::new(DeflateDecoder::new(sink))),
                other => other,
            });
        }
        let done = match &mut self.unpack {
            Some(Unpack::Plain(sink)) => sink.write_all(piece),
            Some(Unpack::Gzip(unpack)) => unpack.write_all(piece),
            Some(Unpack::Zlib(unpack)) => unpack.write_all(piece),
            Some(Unpack::Raw(unpack)) => unpack.write_all(piece),
            Some(Unpack::Deflate(_)) | None => Ok(()),
        };
        let (given, full) = self.sink().map_or((0, false), |sink| (sink.bytes.len(), sink.full));
        if given > RATIO_COUNTS_FROM && given / RATIO_MAX > self.taken {
            return Err(EgressError::Bomb { ratio_max: RATIO_MAX });
        }
        if full {
            return Err(EgressError::TooLarge { bytes_max: self.bytes_max });
        }
        done.map_err(|error| EgressError::Corrupt { why: error.to_string() })
    }

    /// Returns the whole body.
    pub(crate) fn finish(self) -> Result<Vec<u8>, EgressError> {
        let bytes_max = self.bytes_max;
        let unpacked = match self.unpack {
            None => Ok(Vec::new()),
            Some(Unpack::Plain(sink) | Unpack::Deflate(sink)) => Ok(sink.bytes),
            // An empty body is no gzip file, but servers send it with that header.
            Some(Unpack::Gzip(_)) if self.taken == 0 => Ok(Vec::new()),
            Some(Unpack::Gzip(mut unpack)) => {
                unpack.try_finish().map(|()| std::mem::take(&mut unpack.get_mut().bytes))
            }
            Some(Unpack::Zlib(mut unpack)) => {
                unpack.try_finish().map(|()| std::mem::take(&mut unpack.get_mut().bytes))
            }
            Some(Unpack::Raw(mut unpack)) => {
                unpack.try_finish().map(|()| std::mem::take(&mut unpack.get_mut().bytes))
            }
        };
        unpacked.map_err(|error| match error.to_string().as_str() {
            "too much" => EgressError::TooLarge { bytes_max },
            why => EgressError::Corrupt { why: why.to_owned() },
        })
    }

    fn sink(&self) -> Option<&Bounded> {
        match self.unpack.as_ref()? {
            Unpack::Plain(sink) | Unpack::Deflate(sink) => Some(sink),
            Unpack::Gzip(unpack) => Some(unpack.get_ref()),
            Unpack::Zlib(unpack) => Some(unpack.get_ref()),
            Unpack::Raw(unpack) => Some(unpack.get_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    const MB: usize = 1024 * 1024;

    fn unpacked(packing: Packing, packed: &[u8], piece: usize) -> Result<Vec<u8>, String> {
        let mut decoder = Decoder::new(packing, 5 * MB);
        for piece in packed.chunks(piece) {
            decoder.take(piece).map_err(|error| error.to_string())?;
        }
        decoder.finish().map_err(|error| error.to_string())
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_packing_is_undone_in_any_pieces() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(|n| n.to_string().into_bytes()).collect();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(&text).unwrap();
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::default());
        raw.write_all(&text).unwrap();
        let two = [gzip(&text[..1000]), gzip(&text[1000..])].concat();
        for (packing, packed) in [
            (Packing::Plain, text.clone()),
            (Packing::Gzip, gzip(&text)),
            (Packing::Gzip, two),
            (Packing::Deflate, zlib.finish().unwrap()),
            (Packing::Deflate, raw.finish().unwrap()),
        ] {
            for piece in [1, 1000, usize::MAX] {
                assert!(
                    unpacked(packing, &packed, piece).unwrap() == text,
                    "{packing:?} in pieces of {piece}"
                );
            }
        }
        for packing in [Packing::Plain, Packing::Gzip, Packing::Deflate] {
            assert_eq!(unpacked(packing, b"", 1).unwrap(), b"");
        }
    }

    #[test]
    fn too_much_is_refused() {
        let bomb = gzip(&vec![0; 64 * MB]);
        let told = unpacked(Packing::Gzip, &bomb, 1000).unwrap_err();
        assert_eq!(told, "the answer unpacks to more than 100 times its size");
        assert!(unpacked(Packing::Gzip, &bomb, usize::MAX).is_err());
        let told = unpacked(Packing::Plain, &vec![0; 6 * MB], 1000).unwrap_err();
        assert_eq!(told, "the answer has more than 5242880 bytes");
        // Small and very regular is no bomb.
        assert_eq!(unpacked(Packing::Gzip, &gzip(&vec![b' '; MB]), 1000).unwrap().len(), MB);
    }

    #[test]
    fn what_is_not_what_it_says_is_refused() {
        let packed = gzip(b"hello, hello, hello");
        assert_eq!(
            unpacked(Packing::Gzip, b"not gzip at all", 4).unwrap_err(),
            "the answer cannot be unpacked"
        );
        assert_eq!(
            unpacked(Packing::Gzip, &packed[..packed.len() - 9], 4).unwrap_err(),
            "the answer cannot be unpacked"
        );
        for header in ["br", "gzip, gzip", "zstd", "x"] {
            assert!(Packing::parse(Some(header.as_bytes())).is_err(), "{header}");
        }
        assert_eq!(Packing::parse(Some(b" GZIP ")).unwrap(), Packing::Gzip);
        assert_eq!(Packing::parse(None).unwrap(), Packing::Plain);
    }
}
