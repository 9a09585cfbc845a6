// Where batond's page leads to: the pages of other batonds.
#ifndef BATON_CONFIG_PAGE_OPTIONS_H_
#define BATON_CONFIG_PAGE_OPTIONS_H_

#include <string>

#include "base/result.h"

namespace baton::config {

struct PageOptions {
  // Of a batond that has the books of others: where the page of a node is, with {node} for its
  // name, such as "https://{node}:7412/". Empty: nowhere.
  std::string node;
  // Of a batond on a node: the page that has all nodes. Empty: there is none.
  std::string all_nodes;

  template <class V>
  void Visit(V& v) {
    v.Text("node", node,
           "Where the page of a node is, such as \"https://{node}:7412/\": the view of nodes leads "
           "there.");
    v.Text("all_nodes", all_nodes,
           "The page of the batond that has the books of all nodes: this page leads there.");
  }

  // kInvalid: no address of http or https, longer than 1024 bytes, or without {node}.
  Result<void> Check() const;
};

}  // namespace baton::config

#endif  // BATON_CONFIG_PAGE_OPTIONS_H_
