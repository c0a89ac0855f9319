#include "pipe/plan/layouts.h"

#include <string.h>

/* ---- hosts and their orders ---- */

static int host_size(const fl_layout_hosts *h, int host)
{
    return h->first[host + 1] - h->first[host];
}

static void list_devices(fl_layout_hosts *h)
{
    const fl_cluster *c = h->cluster;
    int next[FL_MAX_WORKERS];
    memset(h->first, 0, (size_t)(c->n_hosts + 1) * sizeof *h->first);
    for (int d = 0; d < c->n_devices; d++) {
        h->first[c->host_of[d] + 1]++;
    }
    for (int i = 0; i < c->n_hosts; i++) {
        h->first[i + 1] += h->first[i];
        next[i] = h->first[i];
    }
    for (int socket = 0; socket < c->n_sockets; socket++) {
        for (int d = 0; d < c->n_devices; d++) {
            if (c->socket_of[d] == socket) {
                h->device[next[c->host_of[d]]++] = d;
            }
        }
    }
}

/* What hosts are sorted by: of the host's slowest device, and of the one with least memory. */
typedef enum host_key { AS_GIVEN, FASTEST, SLOWEST, MOST_MEMORY, MOST_DEVICES } host_key;

static double key_of(const fl_layout_hosts *h, int host, host_key key)
{
    const fl_cluster *c = h->cluster;
    double speed = 0.0, memory = 0.0;
    for (int i = h->first[host]; i < h->first[host + 1]; i++) {
        double s = fl_cluster_speed(c, h->device[i]), m = (double)c->memory_bytes[h->device[i]];
        speed = i == h->first[host] || s < speed ? s : speed;
        memory = i == h->first[host] || m < memory ? m : memory;
    }
    switch (key) {
    case FASTEST:
        return -speed;
    case SLOWEST:
        return speed;
    case MOST_MEMORY:
        return memory == 0.0 ? 0.0 : -memory;
    case MOST_DEVICES:
        return -host_size(h, host);
    default:
        return 0.0;
    }
}

/* By insertion: hosts with equal keys keep their order. */
static void sort_hosts(const fl_layout_hosts *h, host_key key, int *order)
{
    double keys[FL_MAX_WORKERS];
    for (int n = 0; n < h->cluster->n_hosts; n++) {
        double mine = key_of(h, n, key);
        int at = n;
        for (; at > 0 && keys[at - 1] > mine; at--) {
            keys[at] = keys[at - 1];
            order[at] = order[at - 1];
        }
        keys[at] = mine;
        order[at] = n;
    }
}

void fl_layout_hosts_init(fl_layout_hosts *h, const fl_cluster *cluster)
{
    size_t size_bytes = (size_t)cluster->n_hosts * sizeof *h->order[0];
    h->cluster = cluster;
    h->n_orders = 0;
    list_devices(h);
    for (int key = AS_GIVEN; key <= MOST_DEVICES; key++) {
        bool is_new = true;
        sort_hosts(h, (host_key)key, h->order[h->n_orders]);
        for (int i = 0; i < h->n_orders; i++) {
            is_new = is_new && memcmp(h->order[i], h->order[h->n_orders], size_bytes) != 0;
        }
        h->n_orders += is_new;
    }
}

/* ---- blocks ---- */

/* The hosts while they are filled. Hosts before `at` in the order have no room for n. */
typedef struct filling {
    const fl_layout_hosts *hosts;
    const int *order;
    int used[FL_MAX_WORKERS]; /* devices of each host */
    int at, n;
} filling;

static int room_of(const filling *f, int host)
{
    return host_size(f->hosts, host) - f->used[host];
}

static int take_device(filling *f, int host)
{
    return f->hosts->device[f->hosts->first[host] + f->used[host]++];
}

/* The first host with room for n more; -1: none. Rooms only shrink. */
static int find_room(filling *f, int n)
{
    f->at = n < f->n ? 0 : f->at;
    f->n = n;
    while (f->at < f->hosts->cluster->n_hosts && room_of(f, f->order[f->at]) < n) {
        f->at++;
    }
    return f->at < f->hosts->cluster->n_hosts ? f->order[f->at] : -1;
}

/* The stages first .. last - 1 of one replica in one host, or in as few parts as there is room. */
static void place_block(filling *f, int first, int last, int *device_of)
{
    while (first < last) {
        int n = last - first, host = find_room(f, n);
        host = host < 0 ? find_room(f, 1) : host;
        n = room_of(f, host) < n ? room_of(f, host) : n;
        for (; n > 0; n--) {
            device_of[first++] = take_device(f, host);
        }
    }
}

static void fill_blocks(const fl_layout_hosts *hosts, const int *order, int K, int R, int block,
                        int *device_of)
{
    filling f = {.hosts = hosts, .order = order};
    bool is_done[FL_MAX_WORKERS] = {false}; /* [r * K + first stage]: whole blocks go first */
    for (int pass = 0; pass < 2; pass++) {
        for (int first = 0; first < K; first += block) {
            int last = first + block < K ? first + block : K;
            for (int r = 0; r < R; r++) {
                bool *done = &is_done[r * K + first];
                if (!*done && (pass == 1 || find_room(&f, last - first) >= 0)) {
                    place_block(&f, first, last, device_of + r * K);
                    *done = true;
                }
            }
        }
    }
}

/* ---- all of few ---- */

/* Devices that can stand for each other: of one socket, kind, speed and memory. */
typedef struct group {
    int first, n; /* in hosts->device */
    bool is_host; /* it is all of its host */
} group;

typedef struct lister {
    fl_layouts *l;
    group group[FL_FEW_PLACES];
    int n_groups;
    int used[FL_FEW_PLACES];
    unsigned char at[FL_FEW_PLACES];
    bool too_many;
} lister;

static bool is_same_group(const fl_cluster *c, int a, int b)
{
    return c->socket_of[a] == c->socket_of[b] && fl_cluster_is_alike(c, a, b);
}

static bool list_groups(lister *s)
{
    const fl_layout_hosts *h = s->l->hosts;
    for (int host = 0; host < h->cluster->n_hosts; host++) {
        int before = s->n_groups;
        for (int i = h->first[host]; i < h->first[host + 1]; i++) {
            group *last = s->n_groups > before ? &s->group[s->n_groups - 1] : NULL;
            if (last != NULL && is_same_group(h->cluster, h->device[last->first], h->device[i])) {
                last->n++;
            } else if (s->n_groups == FL_FEW_PLACES) {
                return false;
            } else {
                s->group[s->n_groups++] = (group){.first = i, .n = 1};
            }
        }
        if (s->n_groups == before + 1) {
            s->group[before].is_host = true;
        }
    }
    return true;
}

/* Of hosts that are alike, the first empty one is as good as the others. */
static bool has_twin(const lister *s, int g)
{
    const fl_layout_hosts *h = s->l->hosts;
    const group *mine = &s->group[g];
    for (int i = 0; i < g && s->used[g] == 0 && mine->is_host; i++) {
        const group *other = &s->group[i];
        if (s->used[i] == 0 && other->is_host && other->n == mine->n &&
            fl_cluster_is_alike(h->cluster, h->device[mine->first], h->device[other->first])) {
            return true;
        }
    }
    return false;
}

/* Replicas can change places with each other: their groups rise from replica to replica. */
static bool rises(const lister *s, int place)
{
    int K = s->l->K;
    return place + 1 < 2 * K || (place + 1) % K != 0 ||
           memcmp(&s->at[place + 1 - 2 * K], &s->at[place + 1 - K], (size_t)K) <= 0;
}

static void list_places(lister *s, int place)
{
    fl_layouts *l = s->l;
    if (place == l->K * l->R) {
        s->too_many = l->n_few == FL_FEW_LAYOUTS;
        if (!s->too_many) {
            memcpy(l->few[l->n_few++], s->at, sizeof s->at);
        }
        return;
    }
    for (int g = 0; g < s->n_groups && !s->too_many; g++) {
        if (s->used[g] == s->group[g].n || has_twin(s, g)) {
            continue;
        }
        s->at[place] = (unsigned char)g;
        s->used[g]++;
        if (rises(s, place)) {
            list_places(s, place + 1);
        }
        s->used[g]--;
    }
}

static void list_few(fl_layouts *l)
{
    lister s = {.l = l};
    if (l->K * l->R > FL_FEW_PLACES || l->hosts->cluster->n_hosts > FL_FEW_PLACES) {
        return;
    }
    if (list_groups(&s) && s.n_groups > 1) {
        list_places(&s, 0);
    }
    l->n_few = s.too_many ? 0 : l->n_few;
}

static void take_few(const fl_layouts *l, int i, int *device_of)
{
    lister s = {.l = (fl_layouts *)l};
    (void)list_groups(&s);
    for (int place = 0; place < l->K * l->R; place++) {
        int g = l->few[i][place];
        device_of[place] = l->hosts->device[s.group[g].first + s.used[g]++];
    }
}

/* ---- one after the other ---- */

void fl_layouts_init(fl_layouts *l, const fl_layout_hosts *hosts, int K, int R)
{
    l->hosts = hosts;
    l->K = K;
    l->R = R;
    l->block = K;
    l->order = l->n_few = l->i_few = 0;
    list_few(l);
}

static void next_block(fl_layouts *l)
{
    bool is_one_place = l->hosts->cluster->n_sockets == 1;
    l->block = l->block == 1 || is_one_place ? 0 : l->block / 2;
    l->order = 0;
}

bool fl_layouts_next(fl_layouts *l, int *device_of)
{
    if (l->block > 0) {
        fill_blocks(l->hosts, l->hosts->order[l->order], l->K, l->R, l->block, device_of);
        if (++l->order == l->hosts->n_orders) {
            next_block(l);
        }
        return true;
    }
    if (l->i_few < l->n_few) {
        take_few(l, l->i_few++, device_of);
        return true;
    }
    return false;
}

void fl_layouts_stop(fl_layouts *l)
{
    l->block = 0;
    l->i_few = l->n_few;
}
