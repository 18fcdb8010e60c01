"""`make release`: everything that somebody installs, in a folder; the same sources and packages give the same bytes.

Each module makes one kind of thing: `oci` and `images` the images, `chart` the chart, `plugin` the kubectl plugin,
`module` the kernel module in its two forms, `clients` what programs call, `nodelender` a package of that daemon,
`papers` notes, checksums and signature.
`archives` and `deb` hold what makes an archive depend on names and contents alone. Nothing is published.
"""
