#include "support/data/cluster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

const fl_link_cost slow_net = {
    .latency_us = 50.0, .bytes_per_us = 10.0, .reduce_bytes_per_us = 10.0};

void cluster_between(fl_cluster *c, int n_hosts, int devices, fl_link_cost between)
{
    fl_cluster_init(c, n_hosts, devices);
    c->link[FL_LINK_HOSTS] = between;
    assert_int_equal(fl_cluster_check(c), FL_OK);
}

double priced(const situation *s, int K, int R, int M, const int *cuts, const int *device_of)
{
    static fl_cost_table table;
    fl_candidate c;
    fl_cost_table_init(&table, &s->input);
    fl_cost_model_price(&table, (fl_grid){.K = K, .R = R, .M = M}, cuts, device_of, &c);
    return c.step_us;
}
