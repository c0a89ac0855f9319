/* What the files of this room share: a tokenizer and a scratch from inside. */
#ifndef FL_DATA_TOKENIZER_PARTS_H
#define FL_DATA_TOKENIZER_PARTS_H

#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/trie.h"
#include "data/tokenizer/unicode/unicode.h"
#include "data/tokenizer/word_cache.h"

/* ---- the vocabulary ---- */

enum { FL_PIECES_MAX = 1 << 22, FL_PIECE_BYTES_MAX = 1 << 16 };

typedef struct fl_vocabulary {
    char *texts; /* of all pieces, each with a zero byte behind it */
    size_t n_texts, texts_room;
    size_t *begins; /* [n_ids] in texts; 0, where an empty text lies, for an id without a piece */
    size_t ids_room;
    int32_t n_ids;
    int32_t n_distinct; /* pieces of different texts: added tokens are numbered from here */
    fl_trie trie;       /* of the pieces: what the model may give */
} fl_vocabulary;

fl_status fl__vocabulary_init(fl_vocabulary *v) FL_MUST_CHECK;
void fl__vocabulary_fini(fl_vocabulary *v);

/* Add a piece. A text that is there gets the new id, as in the files of Hugging Face.
 * FL_ENOMEM, FL_EFORMAT with what is wrong with the id or the text, without a place. */
fl_status fl__vocabulary_add(fl_vocabulary *v, const char *text, size_t n,
                             int64_t id) FL_MUST_CHECK;

/* Give an id that has no text a text, which the model does not know. As above. */
fl_status fl__vocabulary_name(fl_vocabulary *v, const char *text, size_t n,
                              int64_t id) FL_MUST_CHECK;

/* Borrowed; "" for an id without a piece. */
const char *fl__vocabulary_text(const fl_vocabulary *v, int32_t id);

/* ---- added tokens ---- */

typedef struct fl_added_token {
    int32_t id;
    bool single_word, lstrip, rstrip, normalized;
} fl_added_token;

/* Tokens that are found in the text before the model sees it. */
typedef struct fl_added_set {
    fl_trie trie;    /* its ids are places in `tokens` */
    bool first[256]; /* bytes that one of them begins with */
    int n_first;     /* how many of these there are */
    uint8_t one_first;
    int n;
} fl_added_set;

/* ---- templates ---- */

enum { FL_TEMPLATE_ITEMS_MAX = 32 };

typedef enum fl_template_kind { FL_ITEM_TEXT, FL_ITEM_PAIR, FL_ITEM_SPECIAL } fl_template_kind;

typedef struct fl_template_item {
    fl_template_kind kind;
    int32_t id; /* of a special token */
    int32_t type;
} fl_template_item;

/* What stands around a text or a pair. */
typedef struct fl_template {
    int n, n_special;
    fl_template_item items[FL_TEMPLATE_ITEMS_MAX];
} fl_template;

/* ---- byte-level BPE ---- */

typedef struct fl_merge {
    uint64_t key;  /* left id << 32 | right id */
    uint32_t rank; /* UINT32_MAX: no merge here */
    int32_t id;    /* what the two become */
} fl_merge;

typedef struct fl_merge_table {
    fl_merge *merges; /* [1 << bits] */
    int bits;
    size_t n;
} fl_merge_table;

/* A piece of a word while it is merged. */
typedef struct fl_symbol {
    int32_t id, before, behind; /* before, behind: places, -1 at the ends */
    uint32_t n_bytes;           /* 0: it was merged into the one before */
} fl_symbol;

/* A merge that may be due: of the symbol at place `at` with the one behind it. */
typedef struct fl_merge_entry {
    uint32_t rank, at;
    int32_t left, right, id;
} fl_merge_entry;

/* ---- normalized text ---- */

/* A code point of normalized text, and the bytes of the text that it comes from. */
typedef struct fl_norm_char {
    uint32_t code;
    uint32_t begin, end;
} fl_norm_char;

typedef struct fl_norm_mark { /* a code point while NFD puts them in order */
    uint32_t code;
    uint8_t class;
    bool first; /* of its decomposition */
} fl_norm_mark;

/* ---- the whole ---- */

typedef enum fl_tokenizer_kind { FL_WORDPIECE, FL_BYTE_BPE } fl_tokenizer_kind;

struct fl_tokenizer {
    fl_tokenizer_kind kind;
    uint64_t fingerprint;
    fl_char_table chars;
    fl_vocabulary vocabulary;
    fl_added_token *added; /* [n_added] */
    int n_added;
    int n_numbered; /* ids that were given to those that are no pieces, or passed over */
    size_t added_room;
    fl_trie added_names;          /* their texts; its ids are places in `added` */
    fl_added_set raw, normalized; /* found in the text as it is, in the normalized text */
    fl_template single, pair;
    bool trim_spans; /* leave out the white space at a token's ends */
    bool trim_prefix_space;
    int32_t unknown; /* -1: there is none, and what is unknown is left out */

    /* WordPiece */
    bool clean_text, chinese, lower_case, strip_accents;
    uint32_t suffix_root; /* the node behind the prefix of continuing pieces */
    bool has_suffixes;
    int64_t word_chars_max;
    uint8_t ascii[256];       /* FL_BYTE_ of each byte */
    int32_t punctuation[128]; /* the id of each mark of ASCII that stands alone */

    /* byte-level BPE */
    bool prefix_space, whole_words, fuse_unknown;
    int32_t byte_ids[256];   /* -1: the vocabulary lacks it */
    char byte_texts[256][3]; /* how the vocabulary spells each byte */
    fl_merge_table merges;
};

enum { FL_BYTE_WORD, FL_BYTE_SPACE, FL_BYTE_PUNCTUATION };

/* A stretch of text: an added token, or text between them (added -1). */
typedef struct fl_stretch {
    size_t begin, end;
    int added;
} fl_stretch;

typedef struct fl_stretches {
    fl_stretch *list;
    size_t n, room;
} fl_stretches;

struct fl_token_scratch {
    const fl_tokenizer *tokenizer; /* whose words the cache holds */
    fl_word_cache cache;
    int32_t *ids;         /* [n] of all texts of a request so far */
    fl_token_span *spans; /* [n] in bytes of their text; valid if with_spans */
    size_t n, ids_room, spans_room;
    bool with_spans;

    fl_norm_char *norm;
    size_t n_norm, norm_room;
    fl_norm_mark *marks;
    size_t n_marks, marks_room;
    uint8_t *word; /* a normalized word, or text, in UTF-8 */
    size_t word_room;
    uint32_t *word_at; /* [bytes of word + 1] the code point of each byte */
    size_t word_at_room;
    uint8_t *spelled; /* a whole normalized text, likewise */
    size_t spelled_room;
    uint32_t *spelled_at;
    size_t spelled_at_room;
    uint32_t *ends; /* of the pieces of a word */
    size_t ends_room;
    fl_symbol *symbols;
    size_t symbols_room;
    fl_merge_entry *heap;
    size_t n_heap, heap_room;
    fl_stretches raw, normalized;
    uint8_t *prefixed; /* text with a space before it */
    size_t prefixed_room;
};

/* Room for `more` ids and spans behind those that are there. FL_ENOMEM. */
fl_status fl__scratch_room(fl_token_scratch *s, size_t more) FL_MUST_CHECK;

/* Append one id; there is room for it. */
static inline void fl__scratch_add(fl_token_scratch *s, int32_t id, size_t begin, size_t end)
{
    s->spans[s->n] = (fl_token_span){.begin = (int32_t)begin, .end = (int32_t)end};
    s->ids[s->n++] = id;
}

#endif
