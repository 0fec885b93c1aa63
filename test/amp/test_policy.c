/* test_policy.c: the table of operators is well-formed and as long as PyTorch's. */
#include "check.h"

#include <stdbool.h>
#include <string.h>

#include "amp/amp.h"

/* One past the last policy. */
enum { POLICIES = OPENREG_AMP_BANNED + 1 };

/* How many entries the macros of ATen/autocast_mode.h in PyTorch 2.13.0 hold; binary_cross_entropy
 * is registered beside them. */
static const size_t expected_entries[POLICIES] = {
    [OPENREG_AMP_LOWER_PRECISION] = 33,     /* AT_FORALL_LOWER_PRECISION_FP */
    [OPENREG_AMP_FLOAT32] = 59,             /* AT_FORALL_FP32 */
    [OPENREG_AMP_FLOAT32_SET_DTYPE] = 11,   /* AT_FORALL_FP32_SET_OPT_DTYPE */
    [OPENREG_AMP_FLOAT32_APPEND_DTYPE] = 2, /* AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE */
    [OPENREG_AMP_PROMOTE] = 11,             /* AT_FORALL_PROMOTE */
    [OPENREG_AMP_BANNED] = 1,
};

static const openreg_amp_entry *find(const char *name, const char *overload) {
  size_t count;
  const openreg_amp_entry *table = openreg_amp_table(&count);
  for (size_t i = 0; i < count; i++)
    if (strcmp(table[i].operator_name, name) == 0 && strcmp(table[i].overload, overload) == 0)
      return &table[i];
  return NULL;
}

static void assert_policy(const char *name, const char *overload, openreg_amp_policy policy) {
  const openreg_amp_entry *entry = find(name, overload);
  if (entry == NULL)
    fail_msg("%s.%s is not in the table", name, overload);
  else
    assert_int_equal(entry->policy, policy);
}

static void policies_have_as_many_entries_as_in_pytorch(void **state) {
  (void)state;
  size_t count, found[POLICIES] = {0};
  const openreg_amp_entry *table = openreg_amp_table(&count);
  for (size_t i = 0; i < count; i++) {
    assert_in_range(table[i].policy, 0, POLICIES - 1);
    found[table[i].policy]++;
  }
  for (int policy = 0; policy < POLICIES; policy++)
    assert_int_equal(found[policy], expected_entries[policy]);
}

static void table_is_in_the_order_of_the_policies(void **state) {
  (void)state;
  size_t count;
  const openreg_amp_entry *table = openreg_amp_table(&count);
  for (size_t i = 1; i < count; i++)
    assert_true(table[i - 1].policy <= table[i].policy);
}

static void no_operator_appears_twice(void **state) {
  (void)state;
  size_t count;
  const openreg_amp_entry *table = openreg_amp_table(&count);
  for (size_t i = 0; i < count; i++)
    assert_ptr_equal(find(table[i].operator_name, table[i].overload), &table[i]);
}

static void names_are_identifiers_without_namespace(void **state) {
  (void)state;
  const char *identifier =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"; /* no ':' and no '.' */
  size_t count;
  const openreg_amp_entry *table = openreg_amp_table(&count);
  for (size_t i = 0; i < count; i++) {
    const char *name = table[i].operator_name, *overload = table[i].overload;
    assert_true(strlen(name) > 0);
    assert_int_equal(strspn(name, identifier), strlen(name));
    assert_int_equal(strspn(overload, identifier), strlen(overload));
  }
}

static void only_norm_is_replaced(void **state) {
  (void)state;
  size_t count;
  const openreg_amp_entry *table = openreg_amp_table(&count);
  for (size_t i = 0; i < count; i++) {
    bool appends = table[i].policy == OPENREG_AMP_FLOAT32_APPEND_DTYPE;
    assert_int_equal(table[i].replacement != NULL, appends);
  }
  assert_policy("norm", "Scalar", OPENREG_AMP_FLOAT32_APPEND_DTYPE);
  assert_string_equal(find("norm", "Scalar")->replacement, "ScalarOpt_dtype");
  assert_policy("norm", "ScalarOpt_dim", OPENREG_AMP_FLOAT32_APPEND_DTYPE);
  assert_string_equal(find("norm", "ScalarOpt_dim")->replacement, "ScalarOpt_dim_dtype");
}

/* From the lists in PyTorch's documentation of automatic mixed precision. */
static void well_known_operators_have_their_documented_policy(void **state) {
  (void)state;
  assert_policy("linear", "", OPENREG_AMP_LOWER_PRECISION);
  assert_policy("matmul", "", OPENREG_AMP_LOWER_PRECISION);
  assert_policy("conv_transpose2d", "input", OPENREG_AMP_LOWER_PRECISION);
  assert_policy("layer_norm", "", OPENREG_AMP_FLOAT32);
  assert_policy("pow", "Tensor_Scalar", OPENREG_AMP_FLOAT32);
  assert_policy("softmax", "int", OPENREG_AMP_FLOAT32_SET_DTYPE);
  assert_policy("sum", "dim_IntList", OPENREG_AMP_FLOAT32_SET_DTYPE);
  assert_policy("scatter_add", "", OPENREG_AMP_PROMOTE);
  assert_policy("binary_cross_entropy", "", OPENREG_AMP_BANNED);
  assert_null(find("add", "Tensor"));
}

static void policies_have_names(void **state) {
  (void)state;
  assert_string_equal(openreg_amp_policy_name(OPENREG_AMP_LOWER_PRECISION), "lower_precision");
  assert_string_equal(openreg_amp_policy_name(OPENREG_AMP_FLOAT32), "float32");
  assert_string_equal(openreg_amp_policy_name(OPENREG_AMP_FLOAT32_SET_DTYPE), "float32_set_dtype");
  assert_string_equal(openreg_amp_policy_name(OPENREG_AMP_FLOAT32_APPEND_DTYPE),
                      "float32_append_dtype");
  assert_string_equal(openreg_amp_policy_name(OPENREG_AMP_PROMOTE), "promote");
  assert_string_equal(openreg_amp_policy_name(OPENREG_AMP_BANNED), "banned");
}

static void what_is_not_a_policy_has_no_name(void **state) {
  (void)state;
  assert_null(openreg_amp_policy_name((openreg_amp_policy)POLICIES));
  assert_null(openreg_amp_policy_name((openreg_amp_policy)-1));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(policies_have_as_many_entries_as_in_pytorch),
      cmocka_unit_test(table_is_in_the_order_of_the_policies),
      cmocka_unit_test(no_operator_appears_twice),
      cmocka_unit_test(names_are_identifiers_without_namespace),
      cmocka_unit_test(only_norm_is_replaced),
      cmocka_unit_test(well_known_operators_have_their_documented_policy),
      cmocka_unit_test(policies_have_names),
      cmocka_unit_test(what_is_not_a_policy_has_no_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
