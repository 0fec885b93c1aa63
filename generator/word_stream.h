/* word_stream.h: one subsequence of Philox read word by word, as a CUDA thread with a curandState
 * does.
 *
 * It is for operators whose elements draw as often as they need: rejection methods and shuffling. A
 * single normal number takes two words (four in double) and keeps the cosine of its pair for the
 * next call. Words drawn in between do not affect it.
 */
#ifndef OPENREG_GENERATOR_WORD_STREAM_H
#define OPENREG_GENERATOR_WORD_STREAM_H

#include "generator/distributions/box_muller.h"
#include "generator/generator.h"
#include "generator/words.h"

/* A stream returns either float normals or double ones: they share the storage of the cosine. */
typedef struct stream {
  uint64_t seed, subsequence;
  uint64_t block; /* the next one to compute; offsets end at 2^64 words, so it does not wrap */
  uint32_t words[4];
  unsigned used; /* of words */
  bool has_cosine;
  double cosine;
} stream;

static inline stream stream_start(openreg_philox philox, uint64_t subsequence) {
  return (stream){
      .seed = philox.seed, .subsequence = subsequence, .block = philox.offset / 4, .used = 4};
}

static inline uint32_t stream_word(stream *stream) {
  if (stream->used == 4) {
    openreg_philox_block(stream->seed, stream->subsequence, stream->block++, stream->words);
    stream->used = 0;
  }
  return stream->words[stream->used++];
}

static inline float stream_uniform(stream *stream) {
  return uniform_float(stream_word(stream));
}

static inline float stream_normal_float(stream *stream) {
  if (stream->has_cosine) {
    stream->has_cosine = false;
    return (float)stream->cosine;
  }
  float sine, cosine;
  const uint32_t first = stream_word(stream), second = stream_word(stream);
  openreg_box_muller_floats(&first, &second, 1, 1, 1.0f, 0.0f, &sine, &cosine);
  stream->cosine = (double)cosine;
  stream->has_cosine = true;
  return sine;
}

static inline double stream_normal_double(stream *stream) {
  if (stream->has_cosine) {
    stream->has_cosine = false;
    return stream->cosine;
  }
  uint32_t words[4];
  for (int i = 0; i < 4; i++)
    words[i] = stream_word(stream);
  double sine;
  openreg_box_muller_double(words, &sine, &stream->cosine);
  stream->has_cosine = true;
  return sine;
}

#endif
