/* How pixels become what a model of images reads, as preprocessor_config.json has it. */
#ifndef FL_LAUNCHER_HF_HF_PIXELS_H
#define FL_LAUNCHER_HF_HF_PIXELS_H

#include <frostline/status.h>

enum { FL_HF_CHANNELS_MAX = 3 };

/* (value / 255 - mean) / deviation, by channel. */
typedef struct fl_hf_pixels {
    double mean[FL_HF_CHANNELS_MAX], deviation[FL_HF_CHANNELS_MAX];
} fl_hf_pixels;

struct fl_hf_config;

/* Read the file beside config.json into config->pixels; without one, what ViTImageProcessor has.
 * Returns FL_EIO, FL_EFORMAT with the file, the field, what was found and what is allowed. */
fl_status fl__hf_pixels_read(struct fl_hf_config *config) FL_MUST_CHECK;

#endif
