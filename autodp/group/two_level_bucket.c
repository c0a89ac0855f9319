/* A bucket whose owners are on several hosts, several of them on one: a team on each host, and
 * rings between the hosts. The host with the fewest owners has L of them; the data is cut into L
 * lanes, and lane l belongs to owner l of each host.
 *
 *     host A   owner 0   lane 0 <--- ring ---> lane 0   owner 0   host B
 *              owner 1   lane 1 <--- ring ---> lane 1   owner 1
 *              owner 2   (has none)
 *
 *   1. on each host, owner l adds the others' lane l to its own
 *   2. lane l is summed over the hosts by their owners l
 *   3. on each host, all owners copy the lanes that are not theirs
 *
 * Of H hosts, each sends 2 (H - 1) / H of the data, however many owners it has. */
#include "autodp/group/ring.h"
#include "autodp/group/shm_team.h"
#include "device/system/alloc.h"

/* Where the owner at a place sits. */
typedef struct seat {
    int host; /* in the order of their first owners */
    int lane; /* the number of the owner on its host */
} seat;

typedef struct two_level_bucket {
    host_bucket base;
    seat *seats; /* [n_owners] */
    int n_hosts, n_lanes;
    fl__shm_team team;
    fl__ring ring; /* of my lane, if I have one */
} two_level_bucket;

/* ---- who sits where ---- */

/* Whether the owner at `place` reads the memory of all who sit on this host so far. */
static bool fits(const two_level_bucket *b, const int *owners, int place, int host)
{
    const host_group *g = (const host_group *)b->base.base.group;
    for (int i = 0; i < place; i++) {
        if (b->seats[i].host == host &&
            !fl_shm_segment_is_shared(g->segment, owners[i], owners[place])) {
            return false;
        }
    }
    return true;
}

static int count_on(const two_level_bucket *b, int n_places, int host)
{
    int n = 0;
    for (int i = 0; i < n_places; i++) {
        n += b->seats[i].host == host;
    }
    return n;
}

/* The same on all owners: they all know who shares memory with whom. */
static void seat_owners(two_level_bucket *b, const int *owners)
{
    int n = b->base.base.n_owners;
    for (int place = 0; place < n; place++) {
        int host = 0;
        while (host < b->n_hosts && !fits(b, owners, place, host)) {
            host++;
        }
        b->n_hosts += host == b->n_hosts;
        b->seats[place] = (seat){host, count_on(b, place, host)};
    }
    b->n_lanes = n;
    for (int host = 0; host < b->n_hosts; host++) {
        int on_host = count_on(b, n, host);
        b->n_lanes = on_host < b->n_lanes ? on_host : b->n_lanes;
    }
}

static span lane_of(const two_level_bucket *b, int lane)
{
    return fl__span_part((span){0, b->base.base.n}, lane, b->n_lanes);
}

static span part_of(const host_bucket *bucket, int place)
{
    const two_level_bucket *b = (const two_level_bucket *)bucket;
    seat at = b->seats[place];
    return at.lane < b->n_lanes ? fl__ring_part(lane_of(b, at.lane), b->n_hosts, at.host)
                                : (span){0, 0};
}

/* ---- open and close ---- */

static fl_status open_team(two_level_bucket *b, const int *owners, int *members)
{
    seat mine = b->seats[b->base.base.my_place];
    int n = 0;
    for (int place = 0; place < b->base.base.n_owners; place++) {
        if (b->seats[place].host == mine.host) {
            members[n++] = owners[place];
        }
    }
    return fl__shm_team_open(&b->team, &b->base, members, n, mine.lane, b->n_lanes);
}

static fl_status open_ring(two_level_bucket *b, const int *owners, int *members)
{
    seat mine = b->seats[b->base.base.my_place];
    if (mine.lane >= b->n_lanes) {
        return FL_OK;
    }
    for (int place = 0; place < b->base.base.n_owners; place++) {
        if (b->seats[place].lane == mine.lane) {
            members[b->seats[place].host] = owners[place];
        }
    }
    return fl__ring_open(&b->ring, &b->base, lane_of(b, mine.lane), members, b->n_hosts, mine.host);
}

static fl_status open_bucket(host_bucket *bucket, const int *owners)
{
    two_level_bucket *b = (two_level_bucket *)bucket;
    size_t n = (size_t)bucket->base.n_owners;
    int *members = NULL;
    FL_TRY(fl_alloc_array(n, sizeof *b->seats, (void **)&b->seats));
    FL_TRY(fl_alloc_array(n, sizeof *members, (void **)&members));
    seat_owners(b, owners);
    fl_status status = open_team(b, owners, members);
    if (status == FL_OK) {
        status = open_ring(b, owners, members);
    }
    fl_free(members);
    return status;
}

static void close_bucket(host_bucket *bucket)
{
    two_level_bucket *b = (two_level_bucket *)bucket;
    fl__ring_close(&b->ring);
    fl__shm_team_close(&b->team);
    fl_free(b->seats);
}

/* ---- run ---- */

static fl_status run_two_levels(host_bucket *bucket)
{
    two_level_bucket *b = (two_level_bucket *)bucket;
    bool has_lane = b->ring.group != NULL;
    FL_TRY(fl__shm_team_find(&b->team));
    FL_TRY(bucket->op == FL_ALL_GATHER ? FL_OK : fl__shm_team_reduce(&b->team));
    FL_TRY(has_lane ? fl__ring_run(&b->ring, bucket->op) : FL_OK);
    FL_TRY(bucket->op == FL_REDUCE_SCATTER ? FL_OK : fl__shm_team_gather(&b->team));
    return fl__shm_team_leave(&b->team);
}

const host_bucket_ops fl__two_level_buckets = {.size_bytes = sizeof(two_level_bucket),
                                               .shares_data = true,
                                               .part = part_of,
                                               .open = open_bucket,
                                               .close = close_bucket,
                                               .run = run_two_levels};
