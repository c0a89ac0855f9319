#include "control/agent/wire/reach_wire.h"

void fl_reach_put_order(fl_writer *w, const fl_reach_order *order)
{
    fl_put(w, order->number, 8);
    fl_put_i64(w, order->timeout_ms);
    fl_put(w, (uint32_t)order->n, 4);
    for (int i = 0; i < order->n; i++) {
        fl_put(w, order->target[i].host, 2);
        fl_put(w, order->target[i].port, 2);
        fl_put(w, order->target[i].address, 4);
        fl_put(w, order->target[i].is_door, 1);
    }
}

bool fl_reach_get_order(fl_reader *r, fl_reach_order *order)
{
    bool good = true;
    order->number = fl_get(r, 8);
    order->timeout_ms = fl_get_i64(r);
    order->n = fl_get_i32(r);
    if (order->number == 0 || order->timeout_ms < 1 || order->timeout_ms > FL_REACH_MS_MAX ||
        order->n < 1 || order->n > FL_MAX_WORKERS) {
        return false;
    }
    for (int i = 0; i < order->n; i++) {
        fl_reach_target *t = &order->target[i];
        t->host = (uint16_t)fl_get(r, 2);
        t->port = (uint16_t)fl_get(r, 2);
        t->address = (uint32_t)fl_get(r, 4);
        good = fl_get_bool(r, &t->is_door) && good && t->host < FL_MAX_WORKERS && t->port > 0;
    }
    return good;
}

void fl_reach_put_answer(fl_writer *w, const fl_reach_answer *answer)
{
    fl_put(w, answer->number, 8);
    fl_put_text(w, answer->why, FL_REACH_WHY_MAX);
    fl_put(w, (uint32_t)answer->n, 4);
    for (int i = 0; i < answer->n; i++) {
        fl_put(w, answer->host[i], 2);
    }
}

bool fl_reach_get_answer(fl_reader *r, fl_reach_answer *answer)
{
    bool good = true;
    answer->number = fl_get(r, 8);
    if (!fl_get_text(r, answer->why, FL_REACH_WHY_MAX)) {
        return false;
    }
    answer->n = fl_get_i32(r);
    if (answer->number == 0 || answer->n < 0 || answer->n > FL_REACH_ANSWER_MAX ||
        (answer->n == 0) != (answer->why[0] == '\0')) {
        return false;
    }
    for (int i = 0; i < answer->n; i++) {
        answer->host[i] = (uint16_t)fl_get(r, 2);
        good = good && answer->host[i] < FL_MAX_WORKERS;
    }
    return good;
}
