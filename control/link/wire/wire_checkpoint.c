#include "control/link/wire/wire_checkpoint.h"

#include "control/link/wire/ranges.h"

void fl_wire_put_checkpoint_file(fl_writer *w, const fl_checkpoint_file_report *report)
{
    fl_put_i64(w, report->step);
    fl_put_i64(w, report->bytes);
    fl_put(w, report->xxh64, 8);
    fl_put_i64(w, report->serial);
    fl_put(w, (uint32_t)report->layer, 4);
    fl_put(w, (uint32_t)report->part, 4);
    fl_put(w, report->linked, 4);
}

bool fl_wire_get_checkpoint_file(fl_reader *r, uint32_t generation, fl_checkpoint_file_report *f)
{
    *f = (fl_checkpoint_file_report){.generation = generation, .step = fl_get_i64(r)};
    f->bytes = fl_get_i64(r);
    f->xxh64 = fl_get(r, 8);
    f->serial = fl_get_i64(r);
    f->layer = fl_get_i32(r);
    uint64_t part = fl_get(r, 4), linked = fl_get(r, 4);
    f->part = part < FL_CHECKPOINT_PARTS ? (fl_checkpoint_part)part : FL_CHECKPOINT_WEIGHTS;
    f->linked = linked == 1;
    return fl_wire_is_step(f->step) && fl_wire_is_step(f->serial) && fl_wire_is_bytes(f->bytes) &&
           f->layer >= 0 && f->layer < FL_MAX_LAYERS && part < FL_CHECKPOINT_PARTS && linked <= 1 &&
           (!f->linked || (f->bytes == 0 && f->xxh64 == 0));
}

size_t fl_wire_checkpoint_part_size(const fl_checkpoint_part_report *report)
{
    return 6 * 8 + 2 * 4 + 4 + strnlen(report->text, FL_WIRE_REFUSAL_MAX);
}

void fl_wire_put_checkpoint_part(fl_writer *w, const fl_checkpoint_part_report *report)
{
    fl_put_i64(w, report->step);
    fl_put_i64(w, report->bytes);
    fl_put_i64(w, report->copy_us);
    fl_put_i64(w, report->write_us);
    fl_put_i64(w, report->buffer_bytes);
    fl_put_i64(w, report->serial);
    fl_put(w, (uint32_t)report->n_files, 4);
    fl_put(w, (uint32_t)report->status, 4);
    fl_put_text(w, report->text, FL_WIRE_REFUSAL_MAX);
}

bool fl_wire_get_checkpoint_part(fl_reader *r, uint32_t generation, fl_checkpoint_part_report *p)
{
    p->step = fl_get_i64(r);
    p->generation = generation;
    p->bytes = fl_get_i64(r);
    p->copy_us = fl_get_i64(r);
    p->write_us = fl_get_i64(r);
    p->buffer_bytes = fl_get_i64(r);
    p->serial = fl_get_i64(r);
    p->n_files = fl_get_i32(r);
    bool known = fl_wire_get_status(r, &p->status);
    return known && fl_wire_is_step(p->step) && fl_wire_is_step(p->serial) &&
           fl_wire_is_bytes(p->bytes) && fl_wire_is_us(p->copy_us) && fl_wire_is_us(p->write_us) &&
           fl_wire_is_bytes(p->buffer_bytes) && p->n_files >= 0 &&
           p->n_files <= FL_CHECKPOINT_PARTS * FL_MAX_LAYERS &&
           fl_get_text(r, p->text, FL_WIRE_REFUSAL_MAX);
}

void fl_wire_put_snapshot(fl_writer *w, const fl_snapshot_report *report)
{
    fl_put_i64(w, report->step);
    fl_put_i64(w, report->bytes);
    fl_put_i64(w, report->copy_us);
    fl_put_i64(w, report->serial);
    fl_put(w, report->moves, 1);
    fl_put(w, (uint32_t)report->status, 4);
}

bool fl_wire_get_snapshot(fl_reader *r, uint32_t generation, fl_snapshot_report *s)
{
    *s = (fl_snapshot_report){.generation = generation, .step = fl_get_i64(r)};
    s->bytes = fl_get_i64(r);
    s->copy_us = fl_get_i64(r);
    s->serial = fl_get_i64(r);
    return fl_get_bool(r, &s->moves) && fl_wire_get_status(r, &s->status) &&
           fl_wire_is_step(s->step) && fl_wire_is_bytes(s->bytes) && fl_wire_is_us(s->copy_us) &&
           s->serial > 0;
}
