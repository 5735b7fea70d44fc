module spes.dev/hack/kind/node

go 1.24
