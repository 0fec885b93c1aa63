/* token.c: tokens, which stand for points in the operations of threads. */
#include "sanitizer/vector_clock.h"

#include <string.h>

openreg_sanitizer_token *openreg_token_create(struct clocks *clocks, uint64_t tag) {
  openreg_sanitizer_token *token = openreg_heap_take(clocks->heap, sizeof *token);
  if (token == NULL)
    return NULL;
  *token = (openreg_sanitizer_token){.next = clocks->tokens, .tag = tag, .references = 1};
  if (token->next != NULL)
    token->next->previous = token;
  clocks->tokens = token;
  clocks->token_count++;
  return token;
}

void openreg_token_release(struct clocks *clocks, openreg_sanitizer_token *token) {
  if (--token->references > 0)
    return;
  if (token->next != NULL)
    token->next->previous = token->previous;
  if (token->previous != NULL)
    token->previous->next = token->next;
  else
    clocks->tokens = token->next;
  clocks->token_count--;
  openreg_vector_clock_free(clocks->heap, &token->clock);
  openreg_heap_give(clocks->heap, token, sizeof *token);
}

bool openreg_token_record(struct clocks *clocks, openreg_sanitizer_token *token,
                          openreg_sanitizer_thread *thread, uint64_t call_site) {
  thread->is_acquired = true;
  token->recordings++;
  token->recorded[token->recordings % REMEMBERED] = (struct recording){
      thread->slot, thread->clock.epochs[thread->slot], call_site, token->recordings};
  token->is_everything = !openreg_vector_clock_grow(clocks->heap, &token->clock, clocks->count);
  if (token->is_everything)
    return false;
  token->count = clocks->count;
  memcpy(token->clock.epochs, thread->clock.epochs, token->count * sizeof *token->clock.epochs);
  token->id = thread->id;
  token->version = thread->version;
  return true;
}

void openreg_token_wait(struct clocks *clocks, openreg_sanitizer_thread *thread,
                        openreg_sanitizer_token *token, uint64_t call_site) {
  token->waits++;
  token->waited[token->waits % REMEMBERED] =
      (struct waiting){thread->id, call_site, token->recordings};
  if (token->is_everything)
    openreg_clock_acquire_all(clocks, thread);
  else if (token->recordings > 0)
    openreg_clock_acquire(clocks, thread, token->clock.epochs, token->count, token->id,
                          token->version);
}

const openreg_sanitizer_token *openreg_token_find(const struct clocks *clocks, uint32_t slot,
                                                  uint64_t epoch,
                                                  const openreg_sanitizer_thread *thread,
                                                  struct recording *recorded,
                                                  struct waiting *waited) {
  for (const openreg_sanitizer_token *token = clocks->tokens; token != NULL; token = token->next) {
    recorded->number = 0;
    waited->id = 0;
    /* Takes the latest record and wait that fit: the program meant those to belong together. */
    for (uint64_t i = 0; i < REMEMBERED; i++) {
      uint64_t recording = (token->recordings - i) % REMEMBERED;
      uint64_t waiting = (token->waits - i) % REMEMBERED;
      const struct recording *r = &token->recorded[recording];
      const struct waiting *w = &token->waited[waiting];
      if (recorded->number == 0 && r->number != 0 && r->slot == slot && r->epoch >= epoch)
        *recorded = *r;
      if (waited->id == 0 && w->id == thread->id)
        *waited = *w;
    }
    if (recorded->number != 0 && waited->id != 0)
      return token;
  }
  return NULL;
}
