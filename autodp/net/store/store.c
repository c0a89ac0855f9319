/* The store: a chained hash table of entries, each with the requests parked on its key. An entry
 * without a value is a key that some client waits for. */
#include "autodp/net/store/store.h"

#include "autodp/net/store/store_wire.h"
#include "device/system/alloc.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

typedef struct parked {
    struct parked *next;
    uint64_t id;
    size_t from_bytes;
    unsigned char from[FL_STORE_IDENTITY_MAX];
} parked;

typedef struct entry {
    struct entry *next;
    size_t key_bytes;
    char key[FL_STORE_KEY_MAX];
    void *value; /* NULL: not set yet */
    size_t value_bytes;
    parked *waiting;
} entry;

enum { N_CHAINS = 4096 };

struct fl_store {
    entry *chains[N_CHAINS];
    int n_keys; /* set or waited for */
    int n_parked;
};

/* The client that asked, and how to answer it. */
typedef struct caller {
    const void *to;
    size_t to_bytes;
    uint64_t id;
    fl_store_reply *reply;
    void *context;
} caller;

fl_status fl_store_create(fl_store **out)
{
    return fl_alloc(sizeof(fl_store), (void **)out);
}

static void drop_parked(fl_store *store, entry *e)
{
    while (e->waiting != NULL) {
        parked *p = e->waiting;
        e->waiting = p->next;
        fl_free(p);
        store->n_parked--;
    }
}

static void drop_entry(fl_store *store, entry **link)
{
    entry *e = *link;
    assert(e != NULL);
    *link = e->next;
    drop_parked(store, e);
    fl_free(e->value);
    fl_free(e);
    store->n_keys--;
}

void fl_store_forget(fl_store *store, const char *prefix)
{
    size_t n = strlen(prefix);
    for (int i = 0; i < N_CHAINS; i++) {
        entry **link = &store->chains[i];
        while (*link != NULL) {
            if ((*link)->key_bytes >= n && memcmp((*link)->key, prefix, n) == 0) {
                drop_entry(store, link);
            } else {
                link = &(*link)->next;
            }
        }
    }
}

void fl_store_destroy(fl_store **store)
{
    if (*store != NULL) {
        fl_store_forget(*store, "");
        fl_free(*store);
        *store = NULL;
    }
}

static entry **find(fl_store *store, const void *key, size_t key_bytes)
{
    entry **link = &store->chains[XXH3_64bits(key, key_bytes) % N_CHAINS];
    while (*link != NULL &&
           ((*link)->key_bytes != key_bytes || memcmp((*link)->key, key, key_bytes) != 0)) {
        link = &(*link)->next;
    }
    return link;
}

static fl_status find_or_add(fl_store *store, const void *key, size_t key_bytes, entry **out)
{
    entry **link = find(store, key, key_bytes);
    if (*link == NULL) {
        if (store->n_keys >= FL_STORE_KEYS_MAX) {
            return fl_fail(FL_EBUDGET, "the store is full (%d keys)", FL_STORE_KEYS_MAX);
        }
        entry *e = NULL;
        FL_TRY(fl_alloc(sizeof *e, (void **)&e));
        e->key_bytes = key_bytes;
        memcpy(e->key, key, key_bytes);
        *link = e;
        store->n_keys++;
    }
    *out = *link;
    return FL_OK;
}

static void answer(const caller *c, fl_status status, const void *value, size_t value_bytes)
{
    /* The store runs in one thread, but has no static buffer: a reply that does not fit on the
     * stack is built on the heap. */
    unsigned char small[4096], *message = small;
    size_t size_bytes = sizeof(fl_store_answer) + value_bytes;
    if (size_bytes > sizeof small && fl_alloc(size_bytes, (void **)&message) != FL_OK) {
        status = FL_ENOMEM;
        message = small;
        value_bytes = 0;
        size_bytes = sizeof(fl_store_answer);
    }
    fl_store_answer header = {FL_STORE_REPLY_MAGIC, status, c->id, (uint32_t)value_bytes, 0};
    memcpy(message, &header, sizeof header);
    if (value_bytes > 0) {
        memcpy(message + sizeof header, value, value_bytes);
    }
    c->reply(c->context, c->to, c->to_bytes, message, size_bytes);
    if (message != small) {
        fl_free(message);
    }
}

static fl_status set_value(entry *e, const void *value, size_t value_bytes)
{
    if (e->value != NULL) {
        if (e->value_bytes == value_bytes && memcmp(e->value, value, value_bytes) == 0) {
            return FL_OK;
        }
        return fl_fail(FL_EINVAL, "the key is set to another value");
    }
    FL_TRY(fl_alloc(value_bytes, &e->value));
    if (value_bytes > 0) {
        memcpy(e->value, value, value_bytes);
    }
    e->value_bytes = value_bytes;
    return FL_OK;
}

static void wake_waiting(fl_store *store, entry *e, const caller *setter)
{
    for (const parked *p = e->waiting; p != NULL; p = p->next) {
        caller c = {p->from, p->from_bytes, p->id, setter->reply, setter->context};
        answer(&c, FL_OK, e->value, e->value_bytes);
    }
    drop_parked(store, e);
}

static void handle_set(fl_store *store, const caller *c, const void *key, size_t key_bytes,
                       const void *value, size_t value_bytes)
{
    entry *e = NULL;
    fl_status status = find_or_add(store, key, key_bytes, &e);
    if (status == FL_OK) {
        status = set_value(e, value, value_bytes);
        if (status != FL_OK && e->value == NULL && e->waiting == NULL) {
            drop_entry(store, find(store, key, key_bytes));
        }
    }
    answer(c, status, NULL, 0);
    if (status == FL_OK) {
        wake_waiting(store, e, c);
    }
}

/* A client that asks again for the same key replaces its earlier request. So does one that sends
 * the request itself again: it may do so over another connection, and have another identity there.
 */
static fl_status park(fl_store *store, entry *e, const caller *c)
{
    for (parked *p = e->waiting; p != NULL; p = p->next) {
        bool same = p->from_bytes == c->to_bytes && memcmp(p->from, c->to, c->to_bytes) == 0;
        if (same || p->id == c->id) {
            p->id = c->id;
            p->from_bytes = c->to_bytes;
            memcpy(p->from, c->to, c->to_bytes);
            return FL_OK;
        }
    }
    if (store->n_parked >= FL_STORE_PARKED_MAX) {
        return fl_fail(FL_EBUDGET, "too many wait already (%d)", FL_STORE_PARKED_MAX);
    }
    parked *p = NULL;
    FL_TRY(fl_alloc(sizeof *p, (void **)&p));
    p->id = c->id;
    p->from_bytes = c->to_bytes;
    memcpy(p->from, c->to, c->to_bytes);
    p->next = e->waiting;
    e->waiting = p;
    store->n_parked++;
    return FL_OK;
}

static void handle_get(fl_store *store, const caller *c, const void *key, size_t key_bytes)
{
    entry *e = NULL;
    fl_status status = find_or_add(store, key, key_bytes, &e);
    if (status == FL_OK && e->value != NULL) {
        answer(c, FL_OK, e->value, e->value_bytes);
        return;
    }
    if (status == FL_OK) {
        status = park(store, e, c);
        if (status != FL_OK && e->waiting == NULL) {
            drop_entry(store, find(store, key, key_bytes));
        }
    }
    if (status != FL_OK) {
        answer(c, status, NULL, 0);
    }
}

static bool well_formed(const fl_store_request *r, size_t size_bytes)
{
    return r->magic == FL_STORE_REQUEST_MAGIC && r->key_bytes > 0 &&
           r->key_bytes <= FL_STORE_KEY_MAX && r->value_bytes <= FL_STORE_VALUE_MAX &&
           size_bytes == sizeof *r + r->key_bytes + r->value_bytes &&
           (r->op == FL_STORE_SET || (r->op == FL_STORE_GET && r->value_bytes == 0));
}

void fl_store_handle(fl_store *store, const void *from, size_t from_bytes, const void *request,
                     size_t size_bytes, fl_store_reply *reply, void *context)
{
    caller c = {from, from_bytes, 0, reply, context};
    fl_store_request r;
    if (size_bytes < sizeof r || from_bytes == 0 || from_bytes > FL_STORE_IDENTITY_MAX) {
        answer(&c, FL_EFORMAT, NULL, 0);
        return;
    }
    memcpy(&r, request, sizeof r);
    c.id = r.id;
    if (!well_formed(&r, size_bytes)) {
        answer(&c, FL_EFORMAT, NULL, 0);
        return;
    }
    const unsigned char *key = (const unsigned char *)request + sizeof r;
    if (r.op == FL_STORE_SET) {
        handle_set(store, &c, key, r.key_bytes, key + r.key_bytes, r.value_bytes);
    } else {
        handle_get(store, &c, key, r.key_bytes);
    }
}
