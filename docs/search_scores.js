/**
 * Scores of search results, in place of Sphinx's: guides before the API reference, and a page by all words of the query
 * rather than by the best one.
 */

// How a page is preferred to others with the same words, by the longest of these that its name begins with.
const PREFERENCES = {
  "": 0,
  "explanation/": -1,
  "explanation/continuous-batching": 3, // more a guide than the rest
  "how-to/": 3,
  "how-to/use-the-command-line": 1,
  "reference/": 0,
  "reference/api/": -2,
  "reference/command-line": -2,
  "tutorial/": 2,
};

const preference = (page) => {
  const found = Object.keys(PREFERENCES).filter((prefix) => page.startsWith(prefix));
  return PREFERENCES[found.reduce((longest, prefix) => (prefix.length > longest.length ? prefix : longest))];
};

/** True if a stemmed word is in the title of a page, or of one of its sections. */
const isInTitles = (word, file) => [Search._index.titleterms[word] ?? []].flat().includes(file);

var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 2,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,

  score: ([page, title, , , score, , kind]) => {
    if (kind === SearchResultKind.object) {
      const isMember = title.split(".").length > 2; // pyggml.SamplingParams.seed, but not pyggml.SamplingParams
      return score - (isMember ? 8 : 0);
    }
    if (kind === SearchResultKind.text) {
      const query = new URLSearchParams(location.search).get("q") ?? "";
      const words = [...Search._parseQuery(query)[1]];
      const file = Search._index.docnames.indexOf(page);
      const n = words.filter((word) => isInTitles(word, file)).length;
      score = Scorer.term + ((Scorer.title - Scorer.term) * n) / Math.max(words.length, 1);
    }
    return score + preference(page);
  },
};
