/* Which store of kept activations each worker reads from. Each host has as many stores; on it,
 * neighbours share one. All workers know the same map, because it decides which replica takes which
 * sample.
 *
 *     ranks    0 1 2 3 | 4 5 | 6 7       two hosts at the start, ranks 6 and 7 for hosts that join
 *     numbers  0 0 1 1 | 2 3 | 4 5       with two stores on each host
 *
 * When the run starts, nobody knows how the later ranks divide into hosts. So each has a number of
 * its own, and workers of a host that joins share its stores under several numbers. */
#ifndef FL_PIPE_PLAN_BATCH_STORE_MAP_H
#define FL_PIPE_PLAN_BATCH_STORE_MAP_H

#include <frostline/plan.h>

typedef struct fl_store_map {
    int n_stores;  /* on each host; 1 on one host: which worker reads where does not matter */
    int n_workers; /* of the run */
    int n_hosts;   /* with which the run began; 0: one host has all workers */
    int n_ranks;   /* of these hosts; not used with n_hosts 0 */
    int first[FL_MAX_WORKERS]; /* [n_hosts] the first worker of each host, ascending */
} fl_store_map;

/* The first rank that belongs to no host at the start of the run. Pure. */
static inline int fl_store_map_end(const fl_store_map *map)
{
    return map->n_hosts > 0 ? map->n_ranks : map->n_workers;
}

/* The number of its store among those of all hosts. Pure. */
static inline int fl_store_map_of(const fl_store_map *map, int rank)
{
    int n_hosts = map->n_hosts > 0 ? map->n_hosts : 1, i = 0, end = fl_store_map_end(map);
    if (rank >= end) {
        return n_hosts * map->n_stores + rank - end;
    }
    while (i + 1 < map->n_hosts && rank >= map->first[i + 1]) {
        i++;
    }
    int first = map->n_hosts > 0 ? map->first[i] : 0;
    end = i + 1 < map->n_hosts ? map->first[i + 1] : end;
    return i * map->n_stores + (int)((int64_t)(rank - first) * map->n_stores / (end - first));
}

/* How many numbers there are. Pure. */
static inline int fl_store_map_count(const fl_store_map *map)
{
    int n_hosts = map->n_hosts > 0 ? map->n_hosts : 1;
    return n_hosts * map->n_stores + map->n_workers - fl_store_map_end(map);
}

#endif
