#include "data/tokenizer/trie.h"

#include "device/system/alloc.h"

enum { FIRST_BITS = 10, BITS_MAX = 26 };

fl_status fl_trie_init(fl_trie *trie)
{
    *trie = (fl_trie){.bits = FIRST_BITS};
    FL_TRY(fl_alloc_array((size_t)1 << FIRST_BITS, sizeof *trie->edges, (void **)&trie->edges));
    FL_TRY(fl_alloc_room((void **)&trie->ids, 0, 1, sizeof *trie->ids, &trie->room));
    trie->ids[FL_TRIE_ROOT] = -1;
    trie->n_nodes = 1;
    return FL_OK;
}

void fl_trie_fini(fl_trie *trie)
{
    fl_free(trie->edges);
    fl_free(trie->ids);
    *trie = (fl_trie){0};
}

static void place_edge(fl_trie *trie, fl_trie_edge edge)
{
    uint32_t mask = (1u << trie->bits) - 1;
    uint32_t at = (edge.key * UINT32_C(0x9E3779B1)) >> (32 - trie->bits);
    while (trie->edges[at].to != FL_TRIE_ROOT) {
        at = (at + 1) & mask;
    }
    trie->edges[at] = edge;
}

/* At most half of the table is in use. */
static fl_status grow_edges(fl_trie *trie)
{
    if (trie->n_nodes < 1u << (trie->bits - 1)) {
        return FL_OK;
    }
    if (trie->bits == BITS_MAX) {
        return fl_fail(FL_EINVAL, "a vocabulary of more than %u characters", FL_TRIE_NODES_MAX);
    }
    fl_trie_edge *old = trie->edges, *edges;
    size_t n_old = (size_t)1 << trie->bits;
    FL_TRY(fl_alloc_array(n_old * 2, sizeof *edges, (void **)&edges));
    trie->edges = edges;
    trie->bits++;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].to != FL_TRIE_ROOT) {
            place_edge(trie, old[i]);
        }
    }
    fl_free(old);
    return FL_OK;
}

static fl_status add_node(fl_trie *trie, uint32_t from, uint8_t byte, uint32_t *to)
{
    if (trie->n_nodes >= FL_TRIE_NODES_MAX) {
        return fl_fail(FL_EINVAL, "a vocabulary of more than %u characters", FL_TRIE_NODES_MAX);
    }
    FL_TRY(grow_edges(trie));
    FL_TRY(fl_alloc_room((void **)&trie->ids, trie->n_nodes, 1, sizeof *trie->ids, &trie->room));
    *to = trie->n_nodes++;
    trie->ids[*to] = -1;
    place_edge(trie, (fl_trie_edge){.key = from << 8 | byte, .to = *to});
    return FL_OK;
}

fl_status fl_trie_add(fl_trie *trie, const char *text, size_t n, int32_t id)
{
    uint32_t node = FL_TRIE_ROOT;
    for (size_t i = 0; i < n; i++) {
        uint32_t next = fl_trie_next(trie, node, (uint8_t)text[i]);
        if (next == FL_TRIE_ROOT) {
            FL_TRY(add_node(trie, node, (uint8_t)text[i], &next));
        }
        node = next;
    }
    trie->ids[node] = id;
    return FL_OK;
}

uint32_t fl_trie_walk(const fl_trie *trie, const char *text, size_t n, int *found)
{
    uint32_t node = FL_TRIE_ROOT;
    *found = 1;
    for (size_t i = 0; i < n; i++) {
        node = fl_trie_next(trie, node, (uint8_t)text[i]);
        if (node == FL_TRIE_ROOT) {
            *found = 0;
            break;
        }
    }
    return node;
}

int32_t fl_trie_find(const fl_trie *trie, const char *text, size_t n)
{
    int found;
    uint32_t node = fl_trie_walk(trie, text, n, &found);
    return found ? trie->ids[node] : -1;
}
