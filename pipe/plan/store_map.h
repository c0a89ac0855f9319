/* Which store of kept activations each worker reads from. Each host has as many stores; on it,
 * neighbours share one. All workers know the same map, because it decides which replica takes which
 * sample. */
#ifndef FL_PIPE_PLAN_STORE_MAP_H
#define FL_PIPE_PLAN_STORE_MAP_H

#include <frostline/plan.h>

typedef struct fl_store_map {
    int n_stores;  /* on each host; 1 on one host: which worker reads where does not matter */
    int n_workers; /* of the run */
    int n_hosts;   /* 0 or 1: one host has all workers */
    int first[FL_MAX_WORKERS]; /* [n_hosts] the first worker of each host, ascending */
} fl_store_map;

/* The host of a worker, from 0. Pure. */
static inline int fl_store_map_host(const fl_store_map *map, int rank)
{
    int i = 0;
    while (i + 1 < map->n_hosts && rank >= map->first[i + 1]) {
        i++;
    }
    return i;
}

/* The number of its store among those of all hosts. Pure. */
static inline int fl_store_map_of(const fl_store_map *map, int rank)
{
    int i = fl_store_map_host(map, rank);
    int first = map->n_hosts > 0 ? map->first[i] : 0;
    int end = i + 1 < map->n_hosts ? map->first[i + 1] : map->n_workers;
    return i * map->n_stores + (int)((int64_t)(rank - first) * map->n_stores / (end - first));
}

/* Of all hosts. Pure. */
static inline int fl_store_map_count(const fl_store_map *map)
{
    return map->n_stores * (map->n_hosts > 1 ? map->n_hosts : 1);
}

#endif
