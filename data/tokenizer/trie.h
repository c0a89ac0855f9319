/* A set of byte strings with ids, which is walked byte by byte: finds every prefix of a text that
 * is in the set in one pass. Edges lie in one hash table, so a step is one look. */
#ifndef FL_DATA_TOKENIZER_TRIE_H
#define FL_DATA_TOKENIZER_TRIE_H

#include <frostline/status.h>

#include <stddef.h>
#include <stdint.h>

enum { FL_TRIE_ROOT = 0, FL_TRIE_NODES_MAX = 1 << 24 };

typedef struct fl_trie_edge {
    uint32_t key; /* node << 8 | byte */
    uint32_t to;  /* FL_TRIE_ROOT: no edge here, for none leads to the root */
} fl_trie_edge;

typedef struct fl_trie {
    fl_trie_edge *edges; /* [1 << bits] */
    int bits;
    uint32_t n_nodes;
    size_t room;  /* of ids */
    int32_t *ids; /* [n_nodes]; -1: no string ends here */
} fl_trie;

/* An empty set. FL_ENOMEM; call fini after a failure, too. */
fl_status fl_trie_init(fl_trie *trie) FL_MUST_CHECK;
void fl_trie_fini(fl_trie *trie);

/* Add a string, or give one that is there a new id. FL_ENOMEM, FL_EINVAL for a set that is too
 * large. */
fl_status fl_trie_add(fl_trie *trie, const char *text, size_t n, int32_t id) FL_MUST_CHECK;

/* The node behind one more byte; FL_TRIE_ROOT if no string goes on so. */
static inline uint32_t fl_trie_next(const fl_trie *trie, uint32_t node, uint8_t byte)
{
    uint32_t key = node << 8 | byte, mask = (1u << trie->bits) - 1;
    uint32_t at = (key * UINT32_C(0x9E3779B1)) >> (32 - trie->bits);
    while (trie->edges[at].to != FL_TRIE_ROOT && trie->edges[at].key != key) {
        at = (at + 1) & mask;
    }
    return trie->edges[at].to;
}

/* The id of this string, -1 if it is not in the set. */
int32_t fl_trie_find(const fl_trie *trie, const char *text, size_t n);

/* The node of this prefix; *found is false if no string begins with it. */
uint32_t fl_trie_walk(const fl_trie *trie, const char *text, size_t n, int *found);

#endif
