/* token.c: points in what actors did. */
#include "sanitizer/vector_clock.h"

#include <string.h>

openreg_sanitizer_token *openreg_token_create(struct order *order, uint64_t tag) {
  openreg_sanitizer_token *token = openreg_heap_take(order->heap, sizeof *token);
  if (token == NULL)
    return NULL;
  *token = (openreg_sanitizer_token){.next = order->tokens, .tag = tag, .references = 1};
  if (token->next != NULL)
    token->next->previous = token;
  order->tokens = token;
  order->token_count++;
  return token;
}

void openreg_token_release(struct order *order, openreg_sanitizer_token *token) {
  if (--token->references > 0)
    return;
  if (token->next != NULL)
    token->next->previous = token->previous;
  if (token->previous != NULL)
    token->previous->next = token->next;
  else
    order->tokens = token->next;
  order->token_count--;
  openreg_clock_free(order->heap, &token->clock);
  openreg_heap_give(order->heap, token, sizeof *token);
}

bool openreg_token_record(struct order *order, openreg_sanitizer_token *token,
                          openreg_sanitizer_actor *actor, uint64_t site) {
  actor->is_heard = true;
  token->recordings++;
  token->recorded[token->recordings % REMEMBERED] =
      (struct recording){actor->slot, actor->clock.times[actor->slot], site, token->recordings};
  token->is_everything = !openreg_clock_grow(order->heap, &token->clock, order->count);
  if (token->is_everything)
    return false;
  token->count = order->count;
  memcpy(token->clock.times, actor->clock.times, token->count * sizeof *token->clock.times);
  token->serial = actor->serial;
  token->version = actor->version;
  return true;
}

void openreg_token_wait(struct order *order, openreg_sanitizer_actor *actor,
                        openreg_sanitizer_token *token, uint64_t site) {
  token->waits++;
  token->waited[token->waits % REMEMBERED] =
      (struct waiting){actor->serial, site, token->recordings};
  if (token->is_everything)
    openreg_order_join_everything(order, actor);
  else if (token->recordings > 0)
    openreg_order_hear(order, actor, token->clock.times, token->count, token->serial,
                       token->version);
}

const openreg_sanitizer_token *openreg_token_find(const struct order *order, uint32_t slot,
                                                  uint64_t time,
                                                  const openreg_sanitizer_actor *actor,
                                                  struct recording *recorded,
                                                  struct waiting *waited) {
  for (const openreg_sanitizer_token *token = order->tokens; token != NULL; token = token->next) {
    recorded->number = 0;
    waited->serial = 0;
    /* The last of each that fits, for that is where the program meant them to meet. */
    for (uint64_t i = 0; i < REMEMBERED; i++) {
      uint64_t recording = (token->recordings - i) % REMEMBERED;
      uint64_t waiting = (token->waits - i) % REMEMBERED;
      const struct recording *r = &token->recorded[recording];
      const struct waiting *w = &token->waited[waiting];
      if (recorded->number == 0 && r->number != 0 && r->slot == slot && r->time >= time)
        *recorded = *r;
      if (waited->serial == 0 && w->serial == actor->serial)
        *waited = *w;
    }
    if (recorded->number != 0 && waited->serial != 0)
      return token;
  }
  return NULL;
}
