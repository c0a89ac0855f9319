#include "control/checkpoint/manifest/manifest_members.h"

#include "control/checkpoint/manifest/manifest.h"
#include "control/checkpoint/manifest/members.h"

static const fl_member cursor[] = {
    FL_M_COUNT(fl_cursor, epoch), FL_M_COUNT(fl_cursor, position), {0}};

static const fl_member layer[] = {FL_M_TEXT(fl_checkpoint_layer, name),
                                  FL_M_INT(fl_checkpoint_layer, block, 1, INT32_MAX),
                                  FL_M_COUNT(fl_checkpoint_layer, n_params),
                                  {0}};
static const fl_member a_layer[] = {{.name = "", .type = FL_MEMBER_OBJECT, .of = layer}};

static int64_t count_layers(const void *of)
{
    return ((const fl_checkpoint_model *)of)->n_layers;
}

static const fl_member model[] = {
    FL_M_TEXT(fl_checkpoint_model, name),
    FL_M_HASH(fl_checkpoint_model, fingerprint),
    FL_M_INT(fl_checkpoint_model, n_layers, 1, FL_MAX_LAYERS),
    FL_M_ARRAY(fl_checkpoint_model, layer, a_layer, FL_MAX_LAYERS, count_layers),
    {0}};

static const fl_member data[] = {FL_M_HASH(fl_checkpoint_data, fingerprint),
                                 FL_M_COUNT(fl_checkpoint_data, n_samples),
                                 FL_M_COUNT(fl_checkpoint_data, n_validation),
                                 {0}};

/* ---- the plan ---- */

static int64_t count_cuts(const void *of)
{
    return ((const fl_plan *)of)->K + 1;
}

static int64_t count_places(const void *of)
{
    const fl_plan *plan = of;
    return (int64_t)plan->K * plan->R;
}

static int64_t count_workers(const void *of)
{
    return ((const fl_plan *)of)->n_workers;
}

static const fl_member a_layer_number[] = {
    {.name = "", .type = FL_MEMBER_INT, .least = 0, .most = FL_MAX_LAYERS}};
static const fl_member a_rank[] = {
    {.name = "", .type = FL_MEMBER_INT, .least = 0, .most = FL_MAX_WORKERS - 1}};
static const fl_member a_bool[] = {{.name = "", .type = FL_MEMBER_BOOL}};

static const fl_member plan[] = {
    FL_M_NATURAL(fl_plan, generation),
    FL_M_INT(fl_plan, F, 0, FL_MAX_LAYERS),
    FL_M_INT(fl_plan, K, 1, FL_MAX_STAGES),
    FL_M_INT(fl_plan, R, 1, FL_MAX_WORKERS),
    FL_M_INT(fl_plan, M, 1, FL_MAX_MICRO_BATCHES),
    FL_M_INT(fl_plan, schedule, FL_GPIPE, FL_1F1B),
    FL_M_INT(fl_plan, n_layers, 1, FL_MAX_LAYERS),
    FL_M_INT(fl_plan, n_workers, 1, FL_MAX_WORKERS),
    FL_M_ARRAY(fl_plan, first, a_layer_number, FL_MAX_STAGES + 1, count_cuts),
    FL_M_ARRAY(fl_plan, rank_of, a_rank, FL_MAX_WORKERS, count_places),
    FL_M_ARRAY(fl_plan, departed, a_bool, FL_MAX_WORKERS, count_workers),
    FL_M_REAL(fl_plan, predicted_step_us),
    FL_M_REAL(fl_plan, predicted_bubble),
    {0}};

/* ---- the whole ---- */

static const fl_member worker[] = {FL_M_REAL(fl_checkpoint_worker, lr_factor),
                                   FL_M_COUNT(fl_checkpoint_worker, end_step),
                                   FL_M_COUNT(fl_checkpoint_worker, planned_steps),
                                   FL_M_INT(fl_checkpoint_worker, n_skipped, 0, INT32_MAX),
                                   {0}};

static const fl_member records[] = {FL_M_COUNT(fl_checkpoint_records, steps_bytes),
                                    FL_M_COUNT(fl_checkpoint_records, events_bytes),
                                    {0}};

static const fl_member file[] = {FL_M_TEXT(fl_checkpoint_entry, name),
                                 FL_M_COUNT(fl_checkpoint_entry, bytes),
                                 FL_M_HASH(fl_checkpoint_entry, xxh64),
                                 {0}};
static const fl_member a_file[] = {{.name = "", .type = FL_MEMBER_OBJECT, .of = file}};

static int64_t count_files(const void *of)
{
    return ((const fl_checkpoint *)of)->n_files;
}

const fl_member fl__checkpoint_members[] = {
    FL_M_TEXT(fl_checkpoint, written),
    FL_M_TEXT(fl_checkpoint, frostline),
    FL_M_COUNT(fl_checkpoint, step),
    FL_M_OBJECT(fl_checkpoint, cursor, cursor),
    FL_M_OBJECT(fl_checkpoint, model, model),
    FL_M_OBJECT(fl_checkpoint, data, data),
    {.name = "job", .type = FL_MEMBER_STRING, .offset = offsetof(fl_checkpoint, job)},
    FL_M_OBJECT(fl_checkpoint, plan, plan),
    FL_M_OBJECT(fl_checkpoint, worker, worker),
    FL_M_OBJECT(fl_checkpoint, controller, fl_controller_state_members),
    FL_M_OBJECT(fl_checkpoint, records, records),
    FL_M_INT(fl_checkpoint, n_files, 1, FL_CHECKPOINT_FILES_MAX),
    FL_M_ARRAY(fl_checkpoint, file, a_file, FL_CHECKPOINT_FILES_MAX, count_files),
    {0}};
