# Included by ctest before it runs: each suite of a GoogleTest program as one ctest test. A process
# for each case would cost more than most cases do, under sanitizers above all.
#
# Takes suites_name, suites_program, suites_filter and suites_properties.
if(NOT EXISTS "${suites_program}")
  add_test(${suites_name}_NOT_BUILT ${suites_name}_NOT_BUILT)
  return()
endif()
execute_process(COMMAND "${suites_program}" --gtest_list_tests "--gtest_filter=*${suites_filter}"
                OUTPUT_VARIABLE suites_listed RESULT_VARIABLE suites_status)
if(NOT suites_status EQUAL 0)
  message(FATAL_ERROR "${suites_program} --gtest_list_tests: ${suites_status}")
endif()
string(REGEX MATCHALL "[^\n]+" suites_lines "${suites_listed}")
foreach(suites_line IN LISTS suites_lines)
  # "Suite." or "Instance/Suite/0.  # TypeParam = ..."; cases are indented.
  if(suites_line MATCHES "^([^ ]+)\\.( |$)")
    add_test("${suites_name}.${CMAKE_MATCH_1}" "${suites_program}"
             "--gtest_filter=${CMAKE_MATCH_1}.*${suites_filter}")
    set_tests_properties("${suites_name}.${CMAKE_MATCH_1}" PROPERTIES ${suites_properties})
  endif()
endforeach()
