//! The ranking formula Okapi BM25.

/// The usual parameters, k1 and b.
const SATURATION: f64 = 1.2;
const LENGTH_WEIGHT: f64 = 0.75;

/// BM25 over one collection of documents.
#[derive(Debug, Clone, Copy)]
pub struct Bm25 {
    documents: f64,
    average_length: f64,
}

impl Bm25 {
    /// `total_length` is the sum of the lengths of all documents, in the unit of [`Bm25::weight`].
    pub fn new(documents: usize, total_length: f64) -> Bm25 {
        let documents = documents as f64;
        Bm25 { documents, average_length: (total_length / documents.max(1.0)).max(1.0) }
    }

    /// Returns the inverse document frequency of a term that so many documents have.
    pub fn rarity(&self, documents_with: f64) -> f64 {
        let with = documents_with.min(self.documents);
        ((self.documents - with + 0.5) / (with + 0.5)).ln_1p()
    }

    /// Returns how much a term counts in a document of that length. Where fields have weights, the frequency is their
    /// sum.
    pub fn weight(&self, frequency: f64, length: f64) -> f64 {
        let length = 1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * length / self.average_length;
        frequency * (SATURATION + 1.0) / (frequency + SATURATION * length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_terms_and_short_documents_count_more() {
        let bm25 = Bm25::new(100, 1_000.0);
        assert!(bm25.rarity(1.0) > bm25.rarity(50.0));
        assert!(bm25.rarity(100.0) > 0.0 && bm25.rarity(1e9) == bm25.rarity(100.0), "never negative");
        assert!(bm25.weight(1.0, 5.0) > bm25.weight(1.0, 50.0));
        assert!(bm25.weight(2.0, 10.0) > bm25.weight(1.0, 10.0));
        assert!(bm25.weight(1e9, 10.0) <= SATURATION + 1.0, "repetition has a bound");
        assert_eq!(bm25.weight(1.0, 10.0), 1.0, "once in a document of average length");
        assert!(Bm25::new(0, 0.0).weight(1.0, 1.0).is_finite());
    }
}
