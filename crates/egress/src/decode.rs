//! Response bodies: streaming decompression with bounds on size and compression ratio.

use crate::error::EgressError;
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use std::io::{self, Write};

/// A compression ratio that text does not reach; repetitive markup comes near 50.
const RATIO_MAX: usize = 100;
/// Smaller bodies are exempt: they cost little, and short pages of blanks have a high ratio.
const RATIO_COUNTS_FROM: usize = 1024 * 1024;
/// A buffer grows by this step, so that it never allocates twice its size.
const GROWTH_BYTES: usize = 256 * 1024;

/// The `Content-Encoding` of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentEncoding {
    Plain,
    Gzip,
    /// zlib as in RFC 9110, or raw deflate, which some servers send.
    Deflate,
}

impl ContentEncoding {
    /// Parses the `Content-Encoding` header. Nested encodings are refused: only decompression bombs use them.
    pub(crate) fn parse(header: Option<&[u8]>) -> Result<ContentEncoding, EgressError> {
        let text = String::from_utf8_lossy(header.unwrap_or_default()).trim().to_ascii_lowercase();
        match text.as_str() {
            "" | "identity" => Ok(ContentEncoding::Plain),
            "gzip" | "x-gzip" => Ok(ContentEncoding::Gzip),
            "deflate" => Ok(ContentEncoding::Deflate),
            _ => Err(EgressError::Encoding { encoding: text }),
        }
    }
}

/// A buffer with a maximum size.
struct BoundedBuffer {
    bytes: Vec<u8>,
    bytes_max: usize,
    full: bool,
}

impl Write for BoundedBuffer {
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

enum Decompressor {
    Plain(BoundedBuffer),
    Gzip(Box<MultiGzDecoder<BoundedBuffer>>),
    /// zlib or raw deflate; the first byte decides.
    Deflate(BoundedBuffer),
    Zlib(Box<ZlibDecoder<BoundedBuffer>>),
    Raw(Box<DeflateDecoder<BoundedBuffer>>),
}

/// Decodes one body.
pub(crate) struct BodyDecoder {
    unpack: Option<Decompressor>,
    taken: usize,
    bytes_max: usize,
}

impl BodyDecoder {
    pub(crate) fn new(packing: ContentEncoding, bytes_max: usize) -> BodyDecoder {
        let sink = BoundedBuffer { bytes: Vec::new(), bytes_max, full: false };
        let unpack = match packing {
            ContentEncoding::Plain => Decompressor::Plain(sink),
            ContentEncoding::Gzip => Decompressor::Gzip(Box::new(MultiGzDecoder::new(sink))),
            ContentEncoding::Deflate => Decompressor::Deflate(sink),
        };
        BodyDecoder { unpack: Some(unpack), taken: 0, bytes_max }
    }

    /// Decodes one chunk. After an error the decoder must not be used again.
    pub(crate) fn take(&mut self, piece: &[u8]) -> Result<(), EgressError> {
        self.taken += piece.len();
        // The compressed size is bounded too: a decoder may consume input without output.
        if self.taken > self.bytes_max {
            return Err(EgressError::TooLarge { bytes_max: self.bytes_max });
        }
        if let (Some(Decompressor::Deflate(_)), Some(first)) = (&self.unpack, piece.first()) {
            // A zlib header has method 8 in its low bits. A raw stream could begin like this only with a stored block.
            let is_zlib = first & 0x0f == 8;
            self.unpack = self.unpack.take().map(|unpack| match unpack {
                Decompressor::Deflate(sink) if is_zlib => {
                    Decompressor::Zlib(Box::new(ZlibDecoder::new(sink)))
                }
                Decompressor::Deflate(sink) => Decompressor::Raw(Box::new(DeflateDecoder::new(sink))),
                other => other,
            });
        }
        let done = match &mut self.unpack {
            Some(Decompressor::Plain(sink)) => sink.write_all(piece),
            Some(Decompressor::Gzip(unpack)) => unpack.write_all(piece),
            Some(Decompressor::Zlib(unpack)) => unpack.write_all(piece),
            Some(Decompressor::Raw(unpack)) => unpack.write_all(piece),
            Some(Decompressor::Deflate(_)) | None => Ok(()),
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

    /// Returns the decoded body.
    pub(crate) fn finish(self) -> Result<Vec<u8>, EgressError> {
        let bytes_max = self.bytes_max;
        let unpacked = match self.unpack {
            None => Ok(Vec::new()),
            Some(Decompressor::Plain(sink) | Decompressor::Deflate(sink)) => Ok(sink.bytes),
            // An empty body is not valid gzip, but servers send it with that header.
            Some(Decompressor::Gzip(_)) if self.taken == 0 => Ok(Vec::new()),
            Some(Decompressor::Gzip(mut unpack)) => {
                unpack.try_finish().map(|()| std::mem::take(&mut unpack.get_mut().bytes))
            }
            Some(Decompressor::Zlib(mut unpack)) => {
                unpack.try_finish().map(|()| std::mem::take(&mut unpack.get_mut().bytes))
            }
            Some(Decompressor::Raw(mut unpack)) => {
                unpack.try_finish().map(|()| std::mem::take(&mut unpack.get_mut().bytes))
            }
        };
        unpacked.map_err(|error| match error.to_string().as_str() {
            "too much" => EgressError::TooLarge { bytes_max },
            why => EgressError::Corrupt { why: why.to_owned() },
        })
    }

    fn sink(&self) -> Option<&BoundedBuffer> {
        match self.unpack.as_ref()? {
            Decompressor::Plain(sink) | Decompressor::Deflate(sink) => Some(sink),
            Decompressor::Gzip(unpack) => Some(unpack.get_ref()),
            Decompressor::Zlib(unpack) => Some(unpack.get_ref()),
            Decompressor::Raw(unpack) => Some(unpack.get_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    const MB: usize = 1024 * 1024;

    fn unpacked(packing: ContentEncoding, packed: &[u8], piece: usize) -> Result<Vec<u8>, String> {
        let mut decoder = BodyDecoder::new(packing, 5 * MB);
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
            (ContentEncoding::Plain, text.clone()),
            (ContentEncoding::Gzip, gzip(&text)),
            (ContentEncoding::Gzip, two),
            (ContentEncoding::Deflate, zlib.finish().unwrap()),
            (ContentEncoding::Deflate, raw.finish().unwrap()),
        ] {
            for piece in [1, 1000, usize::MAX] {
                assert!(
                    unpacked(packing, &packed, piece).unwrap() == text,
                    "{packing:?} in pieces of {piece}"
                );
            }
        }
        for packing in [ContentEncoding::Plain, ContentEncoding::Gzip, ContentEncoding::Deflate] {
            assert_eq!(unpacked(packing, b"", 1).unwrap(), b"");
        }
    }

    #[test]
    fn too_much_is_refused() {
        let bomb = gzip(&vec![0; 64 * MB]);
        let error = unpacked(ContentEncoding::Gzip, &bomb, 1000).unwrap_err();
        assert_eq!(error, "the response decompresses to more than 100 times its size");
        assert!(unpacked(ContentEncoding::Gzip, &bomb, usize::MAX).is_err());
        let error = unpacked(ContentEncoding::Plain, &vec![0; 6 * MB], 1000).unwrap_err();
        assert_eq!(error, "the response has more than 5242880 bytes");
        // Small and repetitive is not a bomb.
        assert_eq!(unpacked(ContentEncoding::Gzip, &gzip(&vec![b' '; MB]), 1000).unwrap().len(), MB);
    }

    #[test]
    fn what_is_not_what_it_says_is_refused() {
        let packed = gzip(b"hello, hello, hello");
        assert_eq!(
            unpacked(ContentEncoding::Gzip, b"not gzip at all", 4).unwrap_err(),
            "the response cannot be decompressed"
        );
        assert_eq!(
            unpacked(ContentEncoding::Gzip, &packed[..packed.len() - 9], 4).unwrap_err(),
            "the response cannot be decompressed"
        );
        for header in ["br", "gzip, gzip", "zstd", "x"] {
            assert!(ContentEncoding::parse(Some(header.as_bytes())).is_err(), "{header}");
        }
        assert_eq!(ContentEncoding::parse(Some(b" GZIP ")).unwrap(), ContentEncoding::Gzip);
        assert_eq!(ContentEncoding::parse(None).unwrap(), ContentEncoding::Plain);
    }
}
