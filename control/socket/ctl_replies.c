#include "control/socket/ctl_replies.h"

#include "device/system/alloc.h"

#include <string.h>

typedef struct kept {
    char id[FL_CTL_ID_MAX + 1];
    uint64_t fingerprint;
    char *text; /* NULL: free */
} kept;

typedef struct shelf {
    fl_ctl_client client;
    uint64_t used; /* number of the last use; 0: free */
    int next;      /* the slot of the next reply */
    kept reply[FL_CTL_REPLIES];
} shelf;

struct fl_ctl_replies {
    uint64_t clock;
    shelf shelf[FL_CTL_CLIENTS];
};

fl_status fl_ctl_replies_create(fl_ctl_replies **out)
{
    return fl_alloc(sizeof **out, (void **)out);
}

static void empty(shelf *s)
{
    for (int i = 0; i < FL_CTL_REPLIES; i++) {
        fl_free(s->reply[i].text);
    }
    *s = (shelf){0};
}

void fl_ctl_replies_destroy(fl_ctl_replies **replies)
{
    if (*replies != NULL) {
        for (int i = 0; i < FL_CTL_CLIENTS; i++) {
            empty(&(*replies)->shelf[i]);
        }
        fl_free(*replies);
        *replies = NULL;
    }
}

static bool same_client(const fl_ctl_client *a, const fl_ctl_client *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

static shelf *find_shelf(fl_ctl_replies *replies, const fl_ctl_client *client)
{
    for (int i = 0; i < FL_CTL_CLIENTS; i++) {
        shelf *s = &replies->shelf[i];
        if (s->used > 0 && same_client(&s->client, client)) {
            s->used = ++replies->clock;
            return s;
        }
    }
    return NULL;
}

static shelf *take_shelf(fl_ctl_replies *replies, const fl_ctl_client *client)
{
    shelf *oldest = &replies->shelf[0];
    for (int i = 1; i < FL_CTL_CLIENTS; i++) {
        oldest = replies->shelf[i].used < oldest->used ? &replies->shelf[i] : oldest;
    }
    empty(oldest);
    oldest->client = *client;
    oldest->used = ++replies->clock;
    return oldest;
}

const char *fl_ctl_replies_find(fl_ctl_replies *replies, const fl_ctl_client *client,
                                const fl_ctl_request *request, bool *same)
{
    const shelf *s = find_shelf(replies, client);
    for (int i = 0; s != NULL && i < FL_CTL_REPLIES; i++) {
        const kept *k = &s->reply[i];
        if (k->text != NULL && strcmp(k->id, request->id) == 0) {
            *same = k->fingerprint == request->fingerprint;
            return k->text;
        }
    }
    return NULL;
}

void fl_ctl_replies_keep(fl_ctl_replies *replies, const fl_ctl_client *client, const char *id,
                         uint64_t fingerprint, const char *text, size_t size_bytes)
{
    void *copy = NULL;
    if (size_bytes >= FL_CTL_REPLY_MAX || fl_alloc(size_bytes + 1, &copy) != FL_OK) {
        return;
    }
    memcpy(copy, text, size_bytes);
    shelf *s = find_shelf(replies, client);
    s = s == NULL ? take_shelf(replies, client) : s;
    kept *k = &s->reply[s->next];
    s->next = (s->next + 1) % FL_CTL_REPLIES;
    fl_free(k->text);
    memcpy(k->id, id, strlen(id) + 1);
    k->fingerprint = fingerprint;
    k->text = copy;
}
