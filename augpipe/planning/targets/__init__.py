"""Targets: points, boxes, polygons and masks, mapped by the plan that maps the image."""
